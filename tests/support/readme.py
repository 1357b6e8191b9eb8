"""The tables of README and docs, written from what was measured under `results/`: `make readme`."""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from gnnbench import config, papers, registry, units
from gnnbench.benchmarks import layers as benchmark
from gnnbench.benchmarks.draws import NegativesBench
from gnnbench.benchmarks.records import BF16, Bench
from gnnbench.comparison.record import Comparison, Row
from gnnbench.inference import Inference
from gnnbench.kinds import bench, comparison, inference, reproduction, run
from gnnbench.papers import Reproduction
from gnnbench.papers._records import SCALES
from gnnbench.profiling import Profile
from gnnbench.report import plots, tables
from gnnbench.report.tables import NOTHING, Cell, Table, ended, ratio_cell
from gnnbench.results import files
from gnnbench.stats import Interval
from tests.support import ways

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
HEADLINES = (  # the last gains little
    "tolokers_1_gcn.json",
    "ogbn-arxiv_1_gcn.json",
    "synthetic_reddit_0.05_5_sage_max.json",
    "synthetic_reddit_0.05_6_gat.json",
    "dropin/amazon-computers_4_gat.json",
    "dropin/cora_1_gcn.json",
)
COMPARED = {"sum": ("spmm", "dgl"), "weighted": ("spmm", "torch-csr"), "max": ("spmm_max", "dgl")}
SHOWN = "tolokers_1_gcn.json"  # as the command line prints it
DEMO = "demo/gcn.json"  # of `gnnbench demo`


def headlines(folder: Path) -> str:
    """One row per comparison of `HEADLINES`, all on one machine, each with its JSON."""
    paths = [folder / name for name in HEADLINES if (folder / name).exists()]
    compared = {path: files.load(Comparison, path) for path in paths}
    machines = {note for one in compared.values() for note in run.machine(one.environment)}
    assert len(machines) <= 1, "runs of two machines are not to be read side by side"
    heading = ["training", "backend", "PyG epoch", "its epoch", "vs PyG", "vs fastest PyG", "peak memory", "JSON"]
    rows = [_headline(one, path.relative_to(folder.parent).as_posix()) for path, one in compared.items()]
    return tables.markdown(Table(heading, rows, notes=sorted(machines), prose=(0, 1, 7)))


def _headline(one: Comparison, link: str) -> list[Cell]:
    assert one.parity.ok, "only a green comparison is shown"
    pyg, ours = one.rows[0], one.rows[-1]
    fastest = ours.speedup["fastest_pyg"]
    return [
        Cell(run.title(one.config, one.dataset)),
        Cell(ours.backend),
        _epoch(pyg),
        _epoch(ours),
        ratio_cell(ours.speedup["pyg"]),
        ratio_cell(fastest if fastest and fastest.baseline != pyg.backend else None),  # where another one ran
        Cell(f"{units.ratio(ours.memory_ratio)} PyG's") if ours.memory_ratio else NOTHING,
        Cell(f"[{_size(one)}]({link})"),
    ]


def _size(one: Comparison) -> str:
    return f"{units.counted(one.rounds, 'round')} of {units.counted(one.epochs, 'epoch')}"


def output(folder: Path) -> str:
    """Read what `gnnbench compare` printed."""
    path = folder / SHOWN
    if not path.exists():
        return ""
    stream = io.StringIO()
    to = Console(file=stream, width=tables.PIPED_WIDTH, highlight=False, markup=False, emoji=False)
    tables.show(comparison.table(files.load(Comparison, path)), to)
    lines = "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
    return f"```text\n{lines}\n```\n"


def measured(paths: list[Path]) -> str:
    """One table per machine, one row per comparison: epochs, speedups of the last backend, and the conditions."""
    found = [files.load(Comparison, path) for path in paths]
    machines = dict.fromkeys(tuple(run.machine(one.environment)) for one in found)
    return "\n".join(
        _on_one_machine([one for one in found if tuple(run.machine(one.environment)) == machine])
        for machine in machines
    )


def _on_one_machine(found: list[Comparison]) -> str:
    names = list(dict.fromkeys(row.backend for one in found for row in one.rows))
    against = {"pyg": f"{names[-1]} vs pyg"} | ({"fastest_pyg": "vs fastest PyG row"} if len(names) > 2 else {})
    heading = ["run", *names, *against.values(), "peak memory vs pyg"]
    sizes = dict.fromkeys(map(_size, found))
    notes = [*run.machine(found[0].environment), f"Size: {', '.join(sizes)}"]
    return tables.markdown(Table(heading, [_cells(one, names, against) for one in found], notes=notes))


def _cells(one: Comparison, names: list[str], against: Iterable[str]) -> list[Cell]:
    assert one.parity.ok, "only a green comparison is shown"
    rows = {row.backend: row for row in one.rows}
    ours = rows.get(names[-1])
    return [
        Cell(run.title(one.config, one.dataset)),
        *(_epoch(rows.get(name)) for name in names),
        *(ratio_cell(ours.speedup[baseline] if ours else None) for baseline in against),
        Cell(units.ratio(ours.memory_ratio)) if ours and ours.memory_ratio else NOTHING,
    ]


def _epoch(row: Row | None) -> Cell:
    if row is None:
        return NOTHING
    return Cell(units.seconds(row.epoch_s.median)) if row.epoch_s else Cell(ended(row.status))


def matrix(paths: list[Path]) -> str:
    """A row per dataset and a column per model: what the last backend gains over the fastest of PyG's rows."""
    found = {path: files.load(Comparison, path) for path in paths}
    machines = {note for one in found.values() if _is_warm(one) for note in run.machine(one.environment)}
    assert len(machines) <= 1, "runs of two machines are not to be read side by side"
    cells = {tuple(path.stem.split("_", 1)): _gain(one, path) for path, one in found.items()}
    models = sorted({model for _, model in cells})
    labels = {path.stem.split("_", 1)[0]: one.dataset for path, one in found.items()}
    rows = [
        [Cell(label), *(cells.get((dataset, model), NOTHING) for model in models)]
        for dataset, label in labels.items()
    ]
    notes = [*sorted(machines), f"Size: {', '.join(sorted({_size(one) for one in found.values()}))}"]
    notes += ["*: needs too much memory for a warm allocator"] * (not all(map(_is_warm, found.values())))
    return tables.markdown(Table(["dataset", *models], rows, notes=notes))


def _is_warm(one: Comparison) -> bool:
    return one.environment.get("allocator") == "warm"


def _gain(one: Comparison, path: Path) -> Cell:
    assert one.parity.ok, "only a green comparison is shown"
    ours = one.rows[-1]
    gain = ours.speedup["fastest_pyg"]
    if gain is None:
        return Cell(ended(ours.status))
    link = f"[{units.ratio(gain.ratio)}](../{path.relative_to(ROOT).as_posix()})"
    link += "*" * (not _is_warm(one))
    return Cell(link, units.ratio(gain.low, gain.high))


def allocators(folder: Path) -> str:
    """One row per run: epochs of every backend and what ours gains, under both values of `measure.allocator`."""
    kept = {path: files.load(Comparison, path) for path in sorted(folder.glob("allocator/*.json"))}
    pairs = [
        (one, kept[path.with_name(path.name.replace("_system.", "_warm."))])
        for path, one in kept.items()
        if path.name.endswith("_system.json")
    ]
    machines = {note for system, _ in pairs for note in run.machine(system.environment)}
    assert len(machines) <= 1, "runs of two machines are not to be read side by side"
    names = list(dict.fromkeys(row.backend for system, _ in pairs for row in system.rows))
    columns = [*names, *[f"{name} vs fastest PyG" for name in names[-1:]]]
    heading = ["run", *(f"{column}, {allocator}" for column in columns for allocator in ("system", "warm"))]
    rows = [_both(*pair, names) for pair in pairs]
    return tables.markdown(Table(heading, rows, notes=sorted(machines))) if rows else ""


def _both(system: Comparison, warm: Comparison, names: list[str]) -> list[Cell]:
    assert system.parity.ok, "only a green comparison is shown"
    assert warm.parity.ok, "only a green comparison is shown"
    rows = [{row.backend: row for row in one.rows} for one in (system, warm)]
    gains = [ratio_cell(of_one[names[-1]].speedup["fastest_pyg"]) for of_one in rows]
    epochs = [_epoch(of_one.get(name)) for name in names for of_one in rows]
    return [Cell(run.title(system.config, system.dataset)), *epochs, *gains]


def contested(paths: list[Path]) -> str:
    """One row per op, graph, direction and peer: what ours gains at every width, a table for each machine."""
    loaded = [files.load(Bench, path) for path in paths]
    texts = []
    for machine in dict.fromkeys(tuple(run.machine(one.environment)) for one in loaded):
        found = [one for one in loaded if tuple(run.machine(one.environment)) == machine]
        widths = sorted({row.width for one in found for row in one.rows})
        rows = [row for one in found for row in _gains(one, widths)]
        peers = {f"{name} {version}": None for one in found for name, version in one.versions.items()}
        notes = [*machine, f"Peers: {', '.join(peers)}"]
        texts.append(tables.markdown(Table(["op", "gain of", "over", *map(str, widths)], rows, notes=notes)))
    return "\n".join(texts)


def _gains(one: Bench, widths: list[int]) -> Iterator[list[Cell]]:
    assert one.exit_code == 0, "only what was found right is shown"
    ours, rounded = one.backend, one.backend + BF16
    pairs = [(ours, peer) for peer in one.peers if peer != rounded] + [(rounded, ours)]
    for direction in dict.fromkeys(row.direction for row in one.rows):
        op = bench.title(one) + (", backward" if direction == "backward" else "")
        for name, peer in pairs:
            rows = [row for row in one.rows if (row.implementation, row.direction) == (name, direction)]
            gains = {row.width: gain for row in rows if (gain := row.ratio.get(peer))}
            if gains:
                yield [Cell(op), Cell(name), Cell(peer), *(ratio_cell(gains.get(width)) for width in widths)]


def chosen(folder: Path) -> str:
    """One row per graph and op: what the choice gains over a peer at every width, and its regret."""
    texts = []
    for path in sorted((folder / "regret").glob("*.json")):
        one = json.loads(path.read_text())
        shown = {
            (row["graph"], row["op"], peer, row["width"]): (gain["ratio"], row["roofline_fraction"])
            for row in one["peers"]
            for peer, gain in row["ratio"].items()
            if row["implementation"] == "isplib" and gain
        }
        cells: dict[tuple[str, str], dict[int, Cell]] = {}
        for cell in one["cells"]:
            op, peer = COMPARED[cell["op"]]
            gain, share = shown[_unsplit(cell["graph"]), op, peer, cell["width"]]
            below = f"{cell['regret']['ratio']:.2f}, {share:.0%}"
            cells.setdefault((cell["graph"], cell["op"]), {})[cell["width"]] = Cell(units.ratio(gain), below)
        widths = sorted({cell["width"] for cell in one["cells"]})
        rows = [
            [Cell(graph), Cell(op), Cell(COMPARED[op][1]), *(at[width] for width in widths)]
            for (graph, op), at in cells.items()
        ]
        regrets = sorted(cell["regret"]["ratio"] for cell in one["cells"])
        middle = statistics.median(regrets)
        notes = [
            *run.machine(one["environment"]),
            f"Regret: {middle:.2f} in the median, {regrets[-1]:.2f} at most",
        ]
        texts.append(tables.markdown(Table(["graph", "op", "over", *map(str, widths)], rows, notes=notes)))
    return "\n".join(texts)


def _unsplit(label: str) -> str:
    """A dataset's label, as benches write it, which need no split."""
    return label.split(" (")[0]


def reproduced(folder: Path, paper: str) -> str:
    """The claims of a paper at the largest scale that was measured, with protocols and conditions."""
    if found := _largest(folder, paper):
        return tables.markdown(reproduction.claims(found[1]))
    return "Not measured at scale `small` or above yet.\n"


def _largest(folder: Path, paper: str) -> tuple[Path, Reproduction] | None:
    paths = sorted(folder.glob(f"reproductions/{paper}_*.json"))
    loaded = {path: files.load(Reproduction, path) for path in paths}
    kept = {path: one for path, one in loaded.items() if one.scale != "demo"}  # whose graphs are made up
    for one in kept.values():
        papers.judge(one)
    return max(kept.items(), key=lambda item: SCALES.index(item[1].scale), default=None)


def draw(folder: Path) -> None:
    """The demo's speedups, and the pictures of every paper at the largest scale that was measured."""
    demo = files.load(Comparison, folder / DEMO)
    ratios = {row.backend: ratio for row in demo.rows if (ratio := row.speedup["pyg"])}
    series = plots.Series("", [Interval(each.ratio, each.low, each.high) for each in ratios.values()])
    bars = plots.Bars("", "epochs in the time of one of PyG's", [*ratios], [series])
    plots.save([bars], run.title(demo.config, demo.dataset), (folder / DEMO).with_suffix(".svg"))
    for paper in papers.names():
        if found := _largest(folder, paper):
            path, record = found
            for name, panels in reproduction.pictures(record).items():
                plots.save(panels, reproduction.title(record), path.with_name(f"{path.stem}_{name}.svg"))


def _every(table: Callable[[list[Path]], str], pattern: str, folder: Path) -> str:
    return table(sorted(folder.glob(pattern)))


def scaled(folder: Path) -> str:
    """One row per way to train a graph in several processes, each dataset and its machine in a table."""
    texts = []
    for path in sorted((folder / "machines").glob("*.json")):
        one = json.loads(path.read_text())
        facts, network = one["dataset_facts"], units.size(one["network_bytes_per_s"])
        notes = [
            f"Graph: {run.title(one['config'], one['dataset'])}; {units.count(facts['nodes'])} nodes, "
            f"{units.count(facts['edges'])} edges. Loopback interface: {network}/s.",
            "Memory and halo: of the worker with most; exchange: of the first.",
            *run.machine(one["environment"]),
        ]
        heading = ["workers", "threads each", "halos", "halo share", "epoch", "vs one thread", "vs two threads"]
        heading += ["exchange", "peak memory"]
        rows = [_scaled(row) for row in one["rows"] if not row.get("overlap")]  # which was an option once
        texts.append(tables.markdown(Table(heading, rows, notes=notes)))
    return "\n".join(texts)


def _scaled(row: dict[str, Any]) -> list[Cell]:
    epoch = row["epoch_s"]
    gains = [row["speedup"][name] for name in ("one_thread", "two_threads")]
    return [
        Cell(str(row["workers"])),
        Cell(str(row["threads"])),
        Cell(row["halo"]) if row["halo"] else NOTHING,
        Cell(f"{max(row['halo_shares']):.0%}") if row["halo_shares"] else NOTHING,
        Cell(units.seconds(epoch["median"]), units.seconds(epoch["low"], epoch["high"])),
        *(Cell(units.ratio(gain["value"]), units.ratio(gain["low"], gain["high"])) for gain in gains),
        Cell(units.seconds(row["exchange_s"]["median"]), f"{row['exchange_share']:.0%}")
        if row["exchange_s"]
        else NOTHING,
        Cell(units.size(row["peak_memory_bytes"])),
    ]


def waited(folder: Path) -> str:
    """Where the time of a whole command goes."""
    path = folder / "commands" / "compare_cora.json"
    if not path.exists():
        return ""
    record = json.loads(path.read_text())
    parts = {
        "the command": record["seconds"]["whole"],
        "its processes each import PyG": record["seconds"]["unforked"],
        "without evaluating after every epoch": record["seconds"]["without_evaluation"],
        "one round of one epoch": record["seconds"]["least"],
        "importing PyG alone": record["seconds"]["import"],
        **{f"all epochs of `{name}` in it": seconds for name, seconds in record["epochs_s"].items()},
    }
    rows = [[Cell(part), Cell(units.seconds(seconds))] for part, seconds in parts.items()]
    return tables.markdown(Table(["what", "time"], rows, notes=run.machine(record["environment"])))


def programs(folder: Path) -> str:
    """One row per program of PyG's examples and way of running it: time of an epoch, speedup and mean accuracy."""
    path = folder / "programs" / "cora.json"
    if not path.exists():
        return ""
    record = json.loads(path.read_text())
    rows = []
    for name, runs in record["programs"].items():
        for way, row in runs.items():
            value, low, high = row["speedup"]
            speedup = NOTHING if way == "pyg" else Cell(f"{value:.2f}x, {low:.2f}–{high:.2f}x")
            right = sum(row["accuracy"]) / len(row["accuracy"])
            cells = [Cell(name), Cell(way), Cell(units.seconds(row["epoch_s"][0])), speedup, Cell(f"{right:.1%}")]
            rows.append(cells)
    columns = ["program", "run as", "epoch with evaluation", "speedup, 95% interval", "test accuracy"]
    return tables.markdown(Table(columns, rows, notes=run.machine(record["environment"])))


def of_links(folder: Path) -> str:
    """One row per part of training on links: times of PyG, DGL and ours, what ours gains, and its memory."""
    at = folder / "links"
    if not (at / "pair_dot_synthetic_ppa_0.05.json").exists():
        return ""
    pairs = files.load(Bench, at / "pair_dot_synthetic_ppa_0.05.json")
    drawn = files.load(NegativesBench, at / "negatives_synthetic_ppa_0.05.json")
    products = files.load(Bench, at / "products_of_mlp.json")
    profiles = [files.load(Profile, at / f"decoder_mlp_{name}.json") for name in ("pyg", "isplib")]
    epoch = files.load(Comparison, at / "epoch_dot_synthetic_ppa_0.05.json")
    assert pairs.exit_code == 0
    assert epoch.parity.ok, "only a green comparison is shown"
    rows = []
    for direction in ("forward", "backward"):
        by = {row.implementation: row for row in pairs.rows if row.direction == direction}
        ours, pyg = by["isplib"], by["pyg"]
        what = f"dot products of {units.count(pairs.size.edges)} pairs of width {ours.width}, {direction}"
        memory = ours.memory_increase_bytes / pyg.memory_increase_bytes
        times = (by[name].time_s.median for name in ("pyg", "dgl", "isplib"))
        rows.append([what, *times, ours.ratio["pyg"], memory, "pair_dot_synthetic_ppa_0.05"])
    for size in dict.fromkeys(row.batch_size for row in drawn.rows):
        each = {row.implementation: row for row in drawn.rows if row.batch_size == size}
        times = (size * each[name].time_s.median for name in ("pyg", "dgl", "isplib"))
        what = f"{units.count(size)} negatives that are no edges, of {units.count(drawn.edges)}"
        rows.append([what, *times, each["isplib"].ratio["pyg"], None, "negatives_synthetic_ppa_0.05"])
    scored = 2 * profiles[0].dataset_facts.train_links  # with as many negatives
    pyg, ours = (sum(op.time_s for op in one.ops if op.layer == "decoder") for one in profiles)
    memory = profiles[1].memory.peak_bytes / profiles[0].memory.peak_bytes
    what = f"`mlp` of 3 layers on {units.count(scored)} pairs of width 256, forward and backward"
    rows.append([what, pyg, None, ours, pyg / ours, memory, "decoder_mlp_isplib"])
    of = {(row.implementation, row.direction): row for row in products.rows if row.shape[0] == 2048}
    each = [
        sum(2 * scored / 2048 * times * of[name, direction].time_s.median for direction, times in passes)
        for name, passes in (
            ("torch", (("forward", 1), ("backward", 1))),
            ("isplib", (("forward", 2), ("backward", 1))),  # as chunks are evaluated again
        )
    ]
    what = "products of its two wide layers by themselves, 2,048 rows at a time"
    rows.append([what, each[0], None, each[1], each[0] / each[1], None, "products_of_mlp"])
    what = f"an epoch of 3 GCN layers and `dot`, {units.count(epoch.dataset_facts.edges)} edges"
    of_backend = {row.backend: row for row in epoch.rows}
    times, ours = (of_backend[name].epoch_s.median for name in ("pyg", "dgl", "isplib")), of_backend["isplib"]
    rows.append([what, *times, ours.speedup["pyg"], ours.memory_ratio, "epoch_dot_synthetic_ppa_0.05"])
    machine = {note for one in (pairs, drawn, products, *profiles, epoch) for note in run.machine(one.environment)}
    heading = ["on synthetic ppa", "PyG", "DGL", "`isplib`", "gain over PyG", "memory over PyG's", "JSON"]
    cells = [
        [
            Cell(what),
            *(NOTHING if seconds is None else Cell(units.seconds(seconds)) for seconds in times),
            Cell(units.ratio(gain)) if isinstance(gain, float) else ratio_cell(gain),
            NOTHING if share is None else Cell(f"{share:.2g}x"),
            Cell(f"[{name}](../results/links/{name}.json)"),
        ]
        for what, *times, gain, share, name in rows
    ]
    notes = [*sorted(machine), f"Peers: dgl {pairs.versions['dgl']}"]
    return tables.markdown(Table(heading, cells, notes=notes, prose=(0, 6)))


def keys(_: Path) -> str:
    """One row per key of a configuration, those of one dataset, model or kind of batch with its name."""
    sections: dict[str, dict[str, type[config.Section]]] = {
        "dataset": {"": config.DatasetConfig, **_configs("datasets")},
        "model": {"": config.ModelConfig, **_configs("models")},
        "batch": _configs("training.batching"),
        "train": {"": config.TrainConfig},
        "measure": {"": config.MeasureConfig},
        "backend": {"": config.BackendConfig},
    }
    named = {"dataset.source": "datasets", "model.name": "models", "batch.kind": "training.batching"}
    rows: list[list[Cell]] = []
    for section, configs in sections.items():
        owners: dict[tuple[str, str], list[str]] = {}
        fields = {}
        for name, kind in configs.items():
            for key, field in kind.model_fields.items():
                same = (key, "" if f"{section}.{key}" in named else str(field))
                owners.setdefault(same, []).append(name)
                fields.setdefault(same, field)
        for (key, same), names in owners.items():
            if key in sections[section].get("", config.Section).model_fields and "" not in names:
                continue
            field, place = fields[key, same], f"{section}.{key}"
            values = registry.names(named[place]) if place in named else get_args(field.annotation)
            of = "" if "" in names or len(names) == len(configs) else f"of {', '.join(names)}"
            parts = [of, field.description, ", ".join(f"`{value}`" for value in values if isinstance(value, str))]
            default = NOTHING if field.is_required() else Cell(f"`{json.dumps(field.default)}`")
            rows.append([Cell(f"`{section}.{key}`"), default, Cell("; ".join(filter(None, parts)) or "–")])
    return tables.markdown(Table(["key", "default", "meaning, and values"], rows, prose=(0, 1, 2)))


def _configs(package: str) -> dict[str, type[config.Section]]:
    return {name: registry.find(package, name).Config for name in registry.names(package)}


def layered(paths: list[Path]) -> str:
    """One table per benchmark of layers."""
    loaded = [files.load(benchmark.LayerBench, path) for path in paths]
    return "\n".join(tables.markdown(bench.table(one)) for one in loaded)


def inferred(folder: Path) -> str:
    """One row per inference: passes of PyG, DGL and ours, what ours gains, and its memory."""
    heading = ["model", "PyG", "DGL", "`isplib`", "vs PyG", "vs DGL", "peak memory", "JSON"]
    rows, machines = [], dict[str, None]()
    for path in sorted((folder / "inference").glob("*.json")):
        one = files.load(Inference, path)
        assert one.agreement.ok, "only green ones are shown"
        by_name = {row.backend: row for row in one.rows}
        ours, dgl = by_name["isplib"], by_name.get("dgl")
        link = path.relative_to(folder.parent).as_posix()
        rows.append(
            [
                Cell(inference.title(one)),
                tables.time_cell(by_name["pyg"].pass_s),
                tables.time_cell(dgl.pass_s) if dgl else NOTHING,
                tables.time_cell(ours.pass_s),
                ratio_cell(ours.speedup["pyg"]),
                ratio_cell(ours.speedup.get("dgl")),
                Cell(units.size(ours.peak_memory_bytes or 0), f"{units.ratio(ours.memory_ratio or 0)} PyG's"),
                Cell(f"[{path.stem}](../{link})"),
            ]
        )
        machines |= dict.fromkeys(run.machine(one.environment))
    return tables.markdown(Table(heading, rows, notes=[*machines], prose=(0, 7)))


TABLES: dict[str, Callable[[Path], str]] = {
    "headlines": headlines,
    "output": output,
    "epochs": partial(_every, measured, "*.json"),
    "whole": partial(_every, matrix, "whole/*.json"),
    "dropin": partial(_every, measured, "dropin/*.json"),
    "allocator": allocators,
    "regret": chosen,
    "ops": partial(_every, contested, "ops/*.json"),
    "keys": keys,
    "layers": ways.table,
    "layer gains": partial(_every, layered, "layers/*.json"),
    "machines": scaled,
    "commands": waited,
    "links": of_links,
    "inference": inferred,
    "programs": programs,
    **{f"reproduce {paper}": partial(reproduced, paper=paper) for paper in papers.names()},
}


def written(text: str, folder: Path) -> str:
    """The text of a page with its tables as the results in `folder` have them now."""
    for name, table in TABLES.items():
        begin, end = marks(name)
        if begin in text:
            before, rest = text.split(begin)
            text = before + begin + table(folder) + end + rest.split(end)[1]
    return text


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a table."""
    return f"<!-- begin {name}; `make readme` writes this from results/ -->\n", f"<!-- end {name} -->"


if __name__ == "__main__":
    draw(RESULTS)
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
