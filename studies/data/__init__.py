"""Files that studies need: measured by the papers' authors, or once by us; see the README."""

from pathlib import Path

DATA = Path(__file__).parent
KAIROS = DATA / "kairos_latency.csv"
PRICES = DATA / "instance_prices.csv"
LOOKUPS = (DATA / "ribbon_lookup_mtwnd.json", DATA / "ribbon_lookup_resnet.json")
COMPUTING = DATA / "computing.csv"
