"""Files that studies need: measured by the papers' authors, or once by us; see the README."""

from pathlib import Path

DATA = Path(__file__).parent
KAIROS = DATA / "kairos_latency.csv"
PRICES = DATA / "instance_prices.csv"
LOOKUPS = (DATA / "ribbon_lookup_mtwnd.json", DATA / "ribbon_lookup_resnet.json")
COMPUTING = DATA / "computing.csv"
TRACES = {folder.name: folder for folder in sorted((DATA / "traces").iterdir())}


def trace_folder(word: str | Path) -> Path:
    """Return the folder of a trace that is shipped, by its name; else the word as a folder."""
    folder = Path(word)
    return folder if folder.exists() else TRACES.get(str(word), folder)
