"""Prints the files of the tests that were skipped, from a report of pytest in JUnit's form."""

import sys
from pathlib import Path
from xml.etree import ElementTree

cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
modules = {case.attrib["classname"] for case in cases if case.find("skipped") is not None}
files = {
    path
    for module in modules
    for depth in range(1, module.count(".") + 2)
    if (path := Path(*module.split(".")[:depth]).with_suffix(".py")).is_file()
}
sys.stdout.write(" ".join(sorted(map(str, files))))
