"""`tabiced score --engine ray`: Parquet files to a folder of Parquet files, on a cluster."""

from __future__ import annotations

from pathlib import Path

from tabiced.terminal import console, count_line, errors, print_json, progress


def score_on_ray(
    tables: list[Path],
    reference: Path | None,
    out: Path | None,
    ignore: list[str] | None,
    context_rows: int,
    weights: Path | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Score the rows of some files by a reference table and tell how many are unusual."""
    if reference is None or out is None:
        raise ValueError("--engine ray needs --reference, rows to judge by, and --out, a folder")
    from tabiced.files import TableFile
    from tabiced.parquet_parts import check_folder, find_files, read_footers

    check_folder(out)
    files, schema = read_footers(find_files(tables))
    known = TableFile(reference)
    ignored = ignore or []
    for name in ignored:
        if name not in schema.names and name not in known.columns:
            raise ValueError(
                f"--ignore {name}: no such column; the columns are {', '.join(schema.names)}"
            )
    if not set(schema.names) - set(ignored):
        raise ValueError("--ignore leaves no column to judge the rows by")
    from tabiced.estimator import ICED
    from tabiced.ranking import REFERENCE_ROWS
    from tabiced.ray import score_parquet

    with errors.status("Reading the reference ..."):
        rows = known.sample(REFERENCE_ROWS).drop(ignored, strict=False)
        model = ICED(weights=weights, max_context_rows=context_rows).fit(rows)
    total = sum(files.values())
    with progress(f"Scoring {total} rows", total) as report:
        summary = score_parquet(
            tables,
            model,
            out,
            ignore=ignored,
            concurrency=workers,
            report=lambda done, _: report(done),
        )
    if as_json:
        unusual = {f"{level:g}": count for level, count in summary.unusual.items()}
        print_json(
            {"out": str(out), "rows": summary.rows, "files": summary.files, "unusual": unusual}
        )
        return
    for level, found in summary.unusual.items():
        console.print(count_line(found, summary.rows, level))
    console.print(f"Wrote {out}: {summary.files} files.", highlight=False, markup=False)
