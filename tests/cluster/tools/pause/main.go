// Package main waits until it is told to stop. With an address as its argument it answers every
// request there with the name of its host.
package main

import (
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		name, _ := os.Hostname()
		answer := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }
		go http.ListenAndServe(os.Args[1], http.HandlerFunc(answer))
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
