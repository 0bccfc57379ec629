// What the sandboxes of real nodes run; it also answers requests, for tests of the pod network.
module circinus/tests/cluster/pause

go 1.26.0
