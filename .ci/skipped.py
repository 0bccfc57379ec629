"""Prints the tests that were skipped, from a report of pytest in JUnit's form.

They are printed as the name of a file that pytest reads their ids from: there may be hundreds.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

report = Path(sys.argv[1])
ids = set()
for case in ElementTree.parse(report).getroot().iter("testcase"):
    if case.find("skipped") is None:
        continue
    module, name = case.attrib["classname"], case.attrib["name"]
    if not module:  # a file that is skipped as a whole
        module, name = name, ""
    parts = module.split(".")
    for depth in range(len(parts), 0, -1):  # classes of tests come behind their file
        if (path := Path(*parts[:depth]).with_suffix(".py")).is_file():
            inside = [*parts[depth:], name] if name else []
            ids.add("::".join([str(path), *inside]))
            break
listed = report.with_suffix(".skipped")
listed.write_text("\n".join(sorted(ids)))
sys.stdout.write(f"@{listed}")
