"""Rows of SDV and mostlyai-engine for the gallery's comparison on the clinic table.

    .venv/bin/python             benchmarks/rivals_clinic.py prepare WORK
    .venv-rivals-sdv/bin/python  benchmarks/rivals_clinic.py sdv WORK
    .venv-rival/bin/python       benchmarks/rivals_clinic.py mostlyai WORK

`make gallery-rivals` runs all three. Each rival has an environment of its own, without
augmask. It gets the incomplete table and, where it wants them, the kinds of the
columns, and keeps its defaults. Rows and facts (versions, seconds) are committed in
`docs/gallery/rows`; the table is made up, so they show nobody.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import pandas as pd

ROWS = Path(__file__).parents[1] / "docs" / "gallery" / "rows"
N_ROWS = 3000
LEVELS = ("sex", "insurance", "diagnosis", "triage", "smoker", "diabetic", "readmitted")
DATES = ("visit_date",)


def prepare(work: Path) -> None:
    """Write the incomplete table as a CSV file."""
    from augmask import load_clinic

    work.mkdir(parents=True, exist_ok=True)
    load_clinic(N_ROWS).drop(columns="patient").to_csv(work / "clinic.csv", index=False)


def read(work: Path) -> pd.DataFrame:
    """Read the table as its users would."""
    frame = pd.read_csv(work / "clinic.csv", keep_default_na=False, na_values=[""])
    for name in DATES:
        frame[name] = pd.to_datetime(frame[name]).astype("datetime64[ns]")
    return frame


def sdv(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of SDV's Gaussian copula."""
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer

    kinds = {
        column: {
            "sdtype": "categorical"
            if column in LEVELS
            else "datetime"
            if column in DATES
            else "numerical"
        }
        for column in frame
    }
    metadata = Metadata.load_from_dict({"tables": {"table": {"columns": kinds}}})
    model = GaussianCopulaSynthesizer(metadata)
    model.fit({"table": frame})
    made = model.sample(N_ROWS)
    return made["table"] if isinstance(made, dict) else made


def mostlyai(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of mostlyai-engine, asked to impute every column."""
    from mostlyai.engine import TabularARGN

    model = TabularARGN(device="cpu", random_state=0, verbose=0)
    model.fit(frame)
    return model.sample(N_ROWS, imputation={"columns": list(frame)})


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("prepare", "sdv", "mostlyai"))
    parser.add_argument("work", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.work)
        return
    warnings.simplefilter("ignore")
    frame = read(arguments.work)
    began, cpu = time.monotonic(), time.process_time()
    imputes = arguments.what == "mostlyai"
    rows = mostlyai(frame) if imputes else sdv(frame)
    package = "mostlyai-engine" if imputes else "sdv"
    facts = {
        "package": package,
        "version": version(package),
        "torch": version("torch"),
        "pandas": version("pandas"),
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(time.process_time() - cpu),
        "rows": len(rows),
        "command": f"python benchmarks/rivals_clinic.py {arguments.what} WORK",
    }
    ROWS.mkdir(parents=True, exist_ok=True)
    # without a time stamp, so that the same rows are the same bytes
    rows[list(frame)].to_csv(
        ROWS / f"{arguments.what}.csv.gz",
        index=False,
        compression={"method": "gzip", "mtime": 0},
    )
    text = json.dumps(facts, indent=1)
    (ROWS / f"{arguments.what}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
