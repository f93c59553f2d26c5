"""Tests of the package. Run them with `python/test.sh`. They use unittest, which is part of Python."""

import itertools
import json
import os
import pickle
import signal
import tempfile
import threading
import time
import unittest
from dataclasses import replace
from unittest import mock

from rebate import model, sim, traces
from rebate.traces import Catalog, Trace, field, seq, trans

SMALL = {"run.requests": 2000}


def setUpModule() -> None:
    # A shell that runs this in the background makes it ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def listing_1() -> traces.Path:
    decompressed = trans("json", "string").seq("decompress")
    start = seq("tcp", "decrypt", "rpc", "deserialize")
    return start.branch("compressed", decompressed).seq("load-balance").notify()


class Traces(unittest.TestCase):
    def test_what_is_too_deep_or_too_large_is_refused(self) -> None:
        deep, wide, condition, doubled = seq("copy"), seq("copy"), field("a") == 1, field("a") == 1
        for _ in range(20_000):
            deep = traces.Block().branch("hit", deep)
            condition = ~condition
        for _ in range(200):
            wide = wide.join(wide, wide, wide)
            doubled = doubled & doubled

        def refused(path: traces.Path, said: str) -> None:
            with self.assertRaisesRegex(ValueError, said):
                Catalog([Trace("t", "json", path)], flags=["hit"], numbers=["a"])

        refused(deep.notify(), "9 deep")
        refused(wide.notify(), "trace t")
        for one in (condition, doubled):
            refused(seq("copy").branch(one, seq("copy")).notify(), "units of the encoding")

    def test_the_builder_gives_what_the_text_says(self) -> None:
        takes = "encrypted(message(protobuf))"
        catalog = Catalog([Trace("T1", takes, listing_1())], flags=["compressed"])
        text = catalog.text()
        self.assertEqual(Catalog.read(text).text(), text)
        published = Catalog.accelflow()
        flags = ["to-compress", "compressed"]
        same = Catalog([Trace("T1", takes, listing_1())], flags=flags)
        self.assertEqual(same.encode("T1"), published.encode("T1"))
        self.assertEqual(published.decode("again", published.encode("T1", tenant=7)).takes, takes)

    def test_the_services_invoke_what_is_published(self) -> None:
        catalog = Catalog.accelflow()
        counts = [catalog.invocations(service) for service in catalog.services]
        self.assertEqual(sorted(counts), sorted([87, 28, 18, 30, 29, 19, 9, 25]))

    def test_conditions_have_operators(self) -> None:
        condition = (field("tries") < 3) & ~field("found") | "hit"
        self.assertEqual(repr(condition), "tries < 3 and not found or hit")
        for literal in (-1, "3", 1.5):
            with self.assertRaisesRegex(ValueError, "is no whole number from 0 to 4294967295"):
                field("tries") == literal
        with self.assertRaisesRegex(TypeError, "use &, | and ~"):
            bool(field("found") and field("hit"))
        once = seq("tcp").branch(condition, seq("load-balance").notify()).wait("again", 1000)
        drawn = Catalog(
            [Trace("again", "json", once)], flags=["found", "hit"], numbers=["tries"]
        ).svg("again")
        self.assertTrue(drawn.startswith("<svg"), drawn[:40])

    def test_bad_traces_say_what_is_wrong(self) -> None:
        with self.assertRaisesRegex(ValueError, 'no op is called "crypt"; there are: compress, '):
            seq("crypt")
        with self.assertRaisesRegex(ValueError, r'"jso" is no format; write a base'):
            Trace("t", "jso", seq("tcp").notify())
        with self.assertRaisesRegex(ValueError, "trace t, node 2: .*decrypt"):
            Catalog([Trace("t", "json", seq("tcp", "decrypt").notify())])
        with self.assertRaisesRegex(ValueError, "^text:1:14: expected a format"):
            Catalog.read("trace t takes")
        with self.assertRaisesRegex(ValueError, "no trace is called 'T13'|no trace is called \"T13\""):
            Catalog.accelflow().explain("T13")


class Simulator(unittest.TestCase):
    def test_the_same_seed_gives_the_same_rows_on_any_threads(self) -> None:
        ask = {"set": SMALL, "architectures": ["relief", "accelflow"], "runs": 5, "seed": 3}
        one, two = (sim.run("steady", threads=threads, **ask) for threads in (1, 2))
        self.assertEqual(one, two)
        self.assertEqual(pickle.loads(pickle.dumps(one)), one)
        run = one.run("accelflow")
        self.assertEqual(run.verdict, "steady")
        whole = run.value("all", "mean_ns")
        assert whole is not None
        self.assertTrue(0 < whole.low < whole.value < whole.high)
        self.assertGreater(run.reductions["relief"].mean.value, 0)
        self.assertLess(one.run("relief").reductions["accelflow"].mean.value, 0)

    def test_sweeps_combine_and_frames_are_tidy(self) -> None:
        values = {"hardware.pes": [4, 8], "load.total_per_s": [20000, 40000]}
        ask = {"set": SMALL, "architectures": ["accelflow"], "runs": 5}
        results = sim.sweep("steady", values, **ask)
        points = [(run.set["hardware.pes"], run.set["load.total_per_s"]) for run in results]
        self.assertEqual(points, list(itertools.product("48", ["20000", "40000"])))
        results.run("accelflow", hardware__pes=8, load__total_per_s=20000)
        rows = results.rows()
        for make in ("to_pandas", "to_polars"):
            with self.subTest(make):
                try:
                    frame = getattr(results, make)()
                except ImportError as missing:
                    self.absent(missing)
                self.assertEqual(list(frame.columns), list(rows[0]))
                self.assertEqual(len(frame), len(rows))

    def test_results_are_drawn_and_shown(self) -> None:
        ask = {"set": SMALL, "architectures": ["relief", "accelflow"], "runs": 5}
        swept = sim.sweep("steady", {"hardware.pes": [4, 8]}, **ask)
        page = swept._repr_html_()
        self.assertEqual(page.count("<tr>"), 5)
        self.assertIn("<td>accelflow</td>", page)
        try:
            import matplotlib
        except ImportError as missing:
            self.absent(missing)
        matplotlib.use("Agg")
        lines = swept.plot()
        self.assertEqual(lines.get_xlabel(), "hardware.pes")
        self.assertEqual(len(lines.get_legend_handles_labels()[1]), 2)
        bars = sim.run("steady", **ask).plot(metric="mean_ns")
        names = [label.get_text() for label in bars.get_xticklabels()]
        self.assertEqual([name.split()[0] for name in names], ["relief", "accelflow"])
        self.assertIn("(us)", bars.get_ylabel())

    def test_an_overload_is_refused_with_its_reason(self) -> None:
        heavy = SMALL | {"load.total_per_s": 10_000_000}
        run = sim.run("steady", set=heavy, architectures=["non-acc"], runs=5).run("non-acc")
        self.assertEqual(run.verdict, "refused")
        self.assertTrue(run.reason)
        self.assertIsNone(run.value("all", "p99_ns"))

    def test_arcalis_and_relief_are_simulated_as_well(self) -> None:
        for spec in ["arcalis", "relief"]:
            with self.subTest(spec):
                results = sim.run(spec, set={"run.requests": 2_000}, runs=5)
                self.assertGreater(len({run.architecture for run in results}), 1)
                self.assertTrue(all(run.verdict == "steady" for run in results))

    def test_bad_input_names_the_key_and_what_is_valid(self) -> None:
        bad = [
            ({"set": {"hardware.pe": 4}}, "unknown key hardware.pe; did you mean hardware.pes\\? hardware has atm_ns"),
            ({"set": {"hardware.pes": 0}}, "hardware.pes is 0"),
            ({"architectures": ["relif"]}, "relif; there are non-acc"),
            ({"seed": -1}, "seed is -1; it must be 0 to"),
            ({"threads": 0}, "threads is 0; it must be 1 to 1024"),
            ({"runs": 2}, "replications_min is 2; it must be 5 to 100"),
            ({"spec": "nowhere.toml"}, "compiled in are steady, window"),
        ]
        for ask, said in bad:
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                sim.run(**ask)

    def test_recorded_arrivals_are_read_once_and_known_by_what_they_say(self) -> None:
        ask = {"architectures": ["accelflow"], "runs": 5}
        with tempfile.TemporaryDirectory() as folder:
            times, kept = os.path.join(folder, "times.txt"), os.path.join(folder, "kept")
            named = SMALL | {"load.process": "recorded", "load.recording": times}

            def swept(text: str) -> tuple[int, sim.Results]:
                with open(times, "w") as file:
                    file.write(text)
                simulate = sim._rebate.simulate
                with mock.patch.object(sim._rebate, "simulate", side_effect=simulate) as asked:
                    results = sim.sweep("steady", {"hardware.pes": [8]}, set=named, keep=kept, **ask)
                    return asked.call_count, results

            even = "".join(f"{100 * at}\n" for at in range(200))
            made, first = swept(even)
            self.assertEqual((made, swept(even)), (1, (0, first)))
            made, other = swept("0\n1\n50\n")
            self.assertEqual(made, 1)
            self.assertNotEqual(first, other)
            with self.assertRaisesRegex(ValueError, "times.txt:2: .*seven.* is no time"):
                swept("1\nseven\n")
            with self.assertRaisesRegex(ValueError, "/dev/zero: more than 33554432 bytes"):
                sim.run("steady", set=named | {"load.recording": "/dev/zero"}, **ask)
        with self.assertRaisesRegex(ValueError, "/dev/zero: more than 1048576 bytes"):
            sim.run("/dev/zero", **ask)

    def test_a_precision_that_was_not_reached_is_said(self) -> None:
        ask = {"set": SMALL, "architectures": ["accelflow"], "runs": 5}
        self.assertIsNone(sim.run("steady", **ask).run("accelflow").precise)
        # There are so few requests that no replication has a percentile.
        self.assertIs(sim.run("steady", precision=0.9, **ask).run("accelflow").precise, False)

    def test_the_notebooks_go_with_the_package(self) -> None:
        """Runs the code of the notebooks on numbers that were not simulated, without drawing figures."""
        names = ["CPost", "ReadH", "StoreP", "Follow", "Login", "CUrls", "UniqId", "RegUsr", "all"]
        one = sim.Interval(1e6, 9e5, 1.1e6)

        # The facts that the notebooks read are those that a run has.
        facts = sim.run("arcalis", architectures=["cpu"], runs=5).run("cpu").values

        def made(plan: sim.Plan) -> list[sim.Run]:
            compared = {"arcalis": ("cpu", "near-cache", "on-chip", "upi", "pcie")}
            chosen = plan.architectures or compared.get(plan.spec, sim.COMPARED)
            cut = sim.Reduction(sim.Interval(0.5, 0.4, 0.6), sim.Interval(0.5, 0.4, 0.6))
            return [
                sim.Run(
                    spec=plan.spec,
                    set=plan.set,
                    architecture=name,
                    seed=1,
                    replications=5,
                    events=1,
                    verdict="steady",
                    reason=None,
                    precise=None,
                    values={key: one for key in [*facts, *((of, "p99_ns") for of in names)]},
                    reductions={other: cut for other in chosen if other != name},
                )
                for name in chosen
            ]

        def points(
            spec: str, values: dict[str, list[int]], *, keep: None, ray: bool, **options: object
        ) -> list[sim.Results]:
            plan = sim.Plan(spec, **options)
            found = [dict(zip(values, point)) for point in itertools.product(*values.values())]
            texts = [{key: str(value) for key, value in point.items()} for point in found]
            return [sim.Results(tuple(made(plan._at(point)))) for point in texts]

        try:
            import pandas
        except ImportError as missing:
            self.absent(missing)
        self.assertTrue(pandas)

        def subplots(rows: int = 1, columns: int = 1, **options: object) -> tuple[object, object]:
            axes = [mock.MagicMock() for _ in range(rows * columns)]
            return mock.MagicMock(), axes if len(axes) > 1 else axes[0]

        figures = {"accelerometer": 3, "accelflow": 4, "arcalis": 2, "cache-services": 2, "offload-runtime": 3}
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "notebooks")
        found = sorted(name for name in os.listdir(folder) if name.endswith(".ipynb"))
        self.assertEqual(found, [f"{name}.ipynb" for name in sorted(figures)])
        for name, count in figures.items():
            plot = mock.MagicMock()
            plot.subplots.side_effect = subplots
            drawn = {"matplotlib": mock.MagicMock(pyplot=plot), "matplotlib.pyplot": plot}
            with open(os.path.join(folder, f"{name}.ipynb")) as file:
                cells = [cell for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
            home, scope = os.getcwd(), {"__name__": "notebook", "print": lambda *_: None}
            os.chdir(folder)
            try:
                with mock.patch.dict("sys.modules", drawn), mock.patch.object(sim, "points", points):
                    for cell in cells:
                        exec("".join(cell["source"]), scope)
            finally:
                os.chdir(home)
            self.assertEqual(plot.subplots.call_count, count, name)

    def test_other_threads_run_and_an_interrupt_ends_it(self) -> None:
        simulate = sim._rebate.simulate
        began = threading.Event()

        def begun(*args: object, **options: object) -> object:
            began.set()
            return simulate(*args, **options)

        def interrupt() -> None:
            if not began.wait(60):
                return
            # This thread gets the interpreter's lock whenever it wants it. If it got the lock only when the simulation
            # checks for signals, these sleeps would take a minute.
            for _ in range(1_000):
                time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGINT)

        worker = threading.Thread(target=interrupt, daemon=True)
        worker.start()
        started = time.monotonic()
        # The simulation would take more than a minute.
        with mock.patch.object(sim._rebate, "simulate", begun):
            with self.assertRaises(KeyboardInterrupt):
                sim.run("steady", architectures=sim.ALL, runs=100, set={"run.requests": 20_000})
        worker.join()
        self.assertLess(time.monotonic() - started, 30)

    def test_a_local_ray_cluster_gives_the_same_numbers(self) -> None:
        try:
            import ray
        except ImportError as missing:
            self.absent(missing)
        ask = {"set": SMALL, "architectures": ["accelflow"], "runs": 5}
        ray.init("local", num_cpus=2, log_to_driver=False)
        try:
            with tempfile.TemporaryDirectory() as folder:
                # The working directory of this process changes, but not that of the workers.
                home = os.getcwd()
                os.chdir(folder)
                try:
                    with open("own.toml", "w") as own:
                        own.write('base = "accelflow-steady.toml"\nname = "own"\nabout = "A test."\n')
                    values = {"hardware.pes": [4, 8]}
                    here = sim.sweep("own.toml", values, **ask)
                    wait = ray.wait

                    def interrupted(tasks: list[object], **options: object) -> object:
                        if not options:
                            # The sweep has received nothing yet, and all its tasks have ended.
                            wait(tasks, num_returns=len(tasks))
                            signal.raise_signal(signal.SIGINT)
                        return wait(tasks, **options)

                    with mock.patch.object(ray, "wait", interrupted):
                        with self.assertRaises(KeyboardInterrupt):
                            sim.sweep("own.toml", values, ray=True, keep="cut", **ask)
                    self.assertEqual([name[-5:] for name in os.listdir("cut")], [".json"] * 2)
                    there = sim.sweep("own.toml", values, ray=True, keep="kept", **ask)
                    with mock.patch.object(sim._rebate, "simulate", side_effect=AssertionError):
                        again = sim.sweep("own.toml", values, ray=True, keep="kept", **ask)
                        self.assertEqual(sim.sweep("own.toml", values, keep="cut", **ask), here)
                finally:
                    os.chdir(home)
        finally:
            ray.shutdown()
        self.assertEqual(here, there)
        self.assertEqual(here, again)

    def test_an_interrupted_sweep_goes_on_where_it_was(self) -> None:
        values = {"hardware.pes": [2, 4, 8]}
        plan = sim.Plan("steady", set=SMALL, architectures=["relief", "accelflow"], runs=5)
        simulate = sim._rebate.simulate
        calls = 0

        def interrupted(*args: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 3:
                signal.raise_signal(signal.SIGINT)
            return simulate(*args, **options)

        def simulated(plan: sim.Plan, keep: str, **options: object) -> tuple[int, sim.Results]:
            with mock.patch.object(sim._rebate, "simulate", side_effect=simulate) as asked:
                results = sim.sweep(plan, values, keep=keep, **options)
                return asked.call_count, results

        whole = sim.sweep(plan, values)
        with tempfile.TemporaryDirectory() as folder:
            kept = os.path.join(folder, "of", "mine")
            with mock.patch.object(sim._rebate, "simulate", interrupted):
                with self.assertRaises(KeyboardInterrupt):
                    sim.sweep(plan, values, keep=kept)
            self.assertEqual([name[-5:] for name in os.listdir(kept)], [".json"] * 2)
            self.assertEqual(simulated(plan, kept), (1, whole))
            self.assertEqual(simulated(plan, kept, threads=1), (0, whole))
            # A file that has no result, or another point's result, is not used.
            for text in (b"{", b"[]", b'{"of": {}, "runs": []}', b'{"of": "\xff"}'):
                with open(os.path.join(kept, os.listdir(kept)[0]), "wb") as file:
                    file.write(text)
                self.assertEqual(simulated(plan, kept), (1, whole))
            others = ({"seed": 2}, {"runs": 6}, {"set": {}}, {"architectures": ["relief"]})
            for other in others[:2]:
                self.assertEqual(simulated(plan, kept, **other)[0], 3, other)
            names = [replace(plan, **other)._identity({}) for other in others]
            self.assertEqual(len({json.dumps(name) for name in names}), 4)

    def test_a_specification_written_meanwhile_is_not_taken_for_what_was_simulated(self) -> None:
        simulate = sim._rebate.simulate
        ask = {"set": SMALL, "architectures": ["accelflow"], "runs": 5}
        values = {"load.total_per_s": [20000, 40000]}
        with tempfile.TemporaryDirectory() as folder:
            own, kept = os.path.join(folder, "own.toml"), os.path.join(folder, "kept")

            def write(pes: int) -> None:
                with open(own, "w") as file:
                    file.write('base = "accelflow-steady.toml"\nname = "own"\nabout = "A test."\n')
                    file.write("[hardware]\npes = ")
                    file.write(f'{{ value = {pes}, kind = "assumed", source = "a test" }}\n')

            def written(*args: object, **options: object) -> object:
                found = simulate(*args, **options)
                write(2)
                return found

            def swept(simulated: object) -> tuple[int, sim.Results]:
                with mock.patch.object(sim._rebate, "simulate", side_effect=simulated) as asked:
                    results = sim.sweep(own, values, keep=kept, **ask)
                    return asked.call_count, results

            write(8)
            before = sim.sweep(own, values, **ask)
            self.assertEqual(swept(written), (2, before))
            after = sim.sweep(own, values, **ask)
            self.assertNotEqual(before, after)
            self.assertEqual(swept(simulate), (2, after))
            write(8)
            self.assertEqual(swept(simulate), (0, before))

    def test_points_come_one_by_one(self) -> None:
        ask = {"set": SMALL, "architectures": ["accelflow"], "runs": 5}
        found = sim.points("steady", {"hardware.pes": [4, 8]}, **ask)
        self.assertEqual(next(found).run("accelflow").set["hardware.pes"], "4")

    def absent(self, missing: ImportError) -> None:
        """Skips a test whose package is missing. If everything must be tested, the missing package is an error."""
        if os.environ.get("REBATE_PYTHON_REQUIRED"):
            raise missing
        self.skipTest(f"NOT TESTED: {missing}")


class Model(unittest.TestCase):
    def test_the_first_case_study_comes_out(self) -> None:
        # Table 6, AES-NI: 15.7 %, as printed, which is cut off and not rounded.
        case = {"C": 2.0e9, "alpha": 0.165844, "n": 298_951, "o0": 10, "L": 3, "A": 6}
        answer = model.project(**case, threading="Sync", strategy="on-chip")
        self.assertEqual(int(1000 * (answer.speedup.value - 1)), 157)
        self.assertEqual(answer.speedup.low, answer.speedup.high)
        case["alpha"] = (0.14, 0.165844, 0.19)
        wide = model.project(**case, threading="Sync", strategy="on-chip")
        self.assertTrue(wide.speedup.low < answer.speedup.value < wide.speedup.high)
        self.assertEqual(wide.sensitivity[0].symbol, "alpha")
        self.assertIn("<td>speedup</td>", wide._repr_html_())

    def test_sizes_select_what_pays(self) -> None:
        sizes = [(100, 1.0), (1000, 1.0)]
        case = {"C": 1e6, "alpha": 0.22, "n": 40, "L": 2000, "A": 10, "threading": "Async"}
        answer = model.project(**case, sizes=sizes)
        self.assertEqual(answer.offloads.value, 20)
        self.assertAlmostEqual(answer.alpha.value, 0.2)

    def test_the_planner_answers_as_the_command_does(self) -> None:
        spec = model.evaluate("accelerometer-validation")
        names = [answer["id"] for answer in spec.answers]
        self.assertIn("aes_ni", names)
        folder = tempfile.mkdtemp()
        parameters, sizes = os.path.join(folder, "one.toml"), os.path.join(folder, "sizes.csv")
        with open(parameters, "w") as file:
            file.write('C = 2.5e9\nalpha = 0.15\nthreading = "Async"\n')
        with open(sizes, "w") as file:
            file.write("bytes,calls\n4096,10000\n65536,1000\n")
        on_devices = model.evaluate(parameters, sizes=sizes, devices=["iaa", "qat-4xxx"])
        self.assertEqual([one["device"] for one in on_devices.answers], ["iaa", "qat-4xxx"])
        self.assertGreater(on_devices.answers[0]["speedup"]["value"], 1)
        stacks = os.path.join(folder, "a.folded")
        with open(stacks, "w") as file:
            file.write("main;ZSTD_compressBlock_fast 30\nmain;handle 70\n")
        seen = model.evaluate(profile=stacks, kernel="Compression")
        self.assertAlmostEqual(seen.answers[0]["alpha"]["value"], 0.3)
        self.assertIsNotNone(seen.profile)

    def test_bad_requests_to_the_planner_say_what_is_wrong(self) -> None:
        with self.assertRaisesRegex(ValueError, "exactly one of file, profile and scheduler"):
            model.evaluate()
        with self.assertRaisesRegex(ValueError, "cannot read nowhere.toml"):
            model.evaluate("nowhere.toml")
        with self.assertRaisesRegex(RuntimeError, "scheduler 127.0.0.1:1"):
            model.evaluate(scheduler="127.0.0.1:1")

    def test_old_words_are_accepted_with_a_warning(self) -> None:
        case = {"C": 1e6, "alpha": 0.22, "n": 40, "L": 2000, "A": 10, "sizes": [(100, 1.0)]}
        with self.assertWarnsRegex(DeprecationWarning, "is now 'by-calls'"):
            model.project(**case, counted="calls")

    def test_bad_parameters_name_the_field_and_its_range(self) -> None:
        good = {"C": 1e9, "alpha": 0.2, "n": 1000, "A": 4}
        bad = [
            ("alpha", 1.5, "alpha is 1.5; it must be a number from 0 to 1"),
            ("A", 0.5, "A is 0.5; it must be a number of at least 1, or inf"),
            ("C", 0, "C is 0; it must be a number above 0"),
            ("n", float("nan"), "n is NaN; it must be"),
            ("threading", "Fibers", "threading is .Fibers.; it must be Sync, Sync-OS"),
            ("counted", "bytes", "counted is .bytes.; it must be by-work or by-calls"),
        ]
        for name, value, said in bad:
            with self.subTest(name), self.assertRaisesRegex(ValueError, said):
                model.project(**good | {name: value})


if __name__ == "__main__":
    unittest.main()
