"""The picture of the report at the top of the README.

    python benchmarks/report_picture.py augmask-demo/report.html docs/report.png

Takes a screenshot of the top of a report in headless Chromium and keeps it small.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH = 1280
MOST_BYTES = 300_000


def shot(page: Path, top: int, height: int) -> Image.Image:
    """Return what a browser shows of a page, from `top` on."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "page.png"
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                "--disable-gpu",
                f"--window-size={WIDTH},{top + height}",
                f"--screenshot={target}",
                page.absolute().as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        whole = Image.open(target).convert("RGB")
    return whole.crop((0, top, WIDTH, top + height))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    a = parser.parse_args()
    parts = [shot(a.page, top, height) for top, height in ((40, 660), (2930, 1060))]
    whole = Image.new("RGB", (WIDTH, sum(p.height for p in parts)), "white")
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    whole.quantize(96).save(a.out, optimize=True)
    size = a.out.stat().st_size
    print(f"{a.out}: {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        raise SystemExit(f"the picture must stay under {MOST_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    main()
