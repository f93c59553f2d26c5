//! Tests `rebate sim` as a process: equal output with any number of threads, resumed sweeps, refusals and errors.

use std::path::Path;
use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rebate"));
    command.arg("sim").args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The flags of short runs of two architectures.
const SHORT: [&str; 8] = [
    "--spec",
    "steady",
    "--set",
    "run.requests=2000",
    "--runs",
    "5",
    "--architecture",
    "relief,accelflow",
];

#[test]
fn a_seed_gives_the_same_bytes_on_any_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |threads: &str, file: &Path| {
        let file = file.to_str().expect("text");
        let output = sim(&[&SHORT[..], &["--threads", threads, "--csv", file]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), std::fs::read_to_string(file).expect("rows"))
    };
    let one = with("1", &folder.path().join("one.csv"));
    assert_eq!(one, with("3", &folder.path().join("three.csv")));
    assert!(one.0.contains("order of the percentiles") || one.0.contains("mean (us)"), "{}", one.0);
    assert!(
        one.1
            .starts_with("spec,architecture,seed,runs,inputs,verdict,name,metric,value,low,high\n")
    );
}

#[test]
fn an_interrupted_sweep_is_taken_up_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sweep.csv");
    let path = file.to_str().expect("text");
    let swept = [&SHORT[..], &["--sweep", "hardware.pes=4,8", "--csv", path]].concat();
    assert!(sim(&swept).status.success());
    let whole = std::fs::read_to_string(&file).expect("rows");
    // The file looks as if the program had been stopped within the third of four studies.
    let cut = whole.find("steady,8,relief").expect("the third") + 300;
    std::fs::write(&file, &whole[..cut]).expect("written");
    assert!(sim(&[&swept[..], &["--resume"]].concat()).status.success());
    assert_eq!(std::fs::read_to_string(&file).expect("rows"), whole);
    let again = sim(&swept);
    assert_eq!(again.status.code(), Some(2), "what is there is not written over");
    assert!(text(&again.stderr).contains("is there already; --resume"), "{}", text(&again.stderr));
    // Other inputs give other numbers, even if the columns are equal.
    let set = ["--set", "work.app_stages=2", "--architecture", "relief", "--resume"];
    assert!(
        sim(&[&swept[..SHORT.len() - 2], &swept[SHORT.len()..], &set].concat()).status.success()
    );
    let more = std::fs::read_to_string(&file).expect("rows");
    assert!(more.starts_with(&whole) && more.len() > whole.len(), "they are added");
    let other = sim(&[&SHORT[..], &["--csv", path, "--resume"]].concat());
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("has other columns"), "{}", text(&other.stderr));
}

#[test]
fn a_sweep_that_is_killed_keeps_what_is_finished() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (whole, killed) = (file("whole.csv"), file("killed.csv"));
    let swept = |file: &str| {
        let values: Vec<String> = (1..=40).map(|pes| pes.to_string()).collect();
        let sweep = format!("hardware.pes={}", values.join(","));
        let args = ["--spec", "steady", "--set", "run.requests=400", "--runs", "5"];
        let more = ["--architecture", "accelflow", "--sweep", &sweep, "--csv", file];
        args.iter().chain(&more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_rebate"))
        .arg("sim")
        .args(swept(&killed))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the binary runs");
    let rows = || std::fs::read_to_string(&killed).unwrap_or_default();
    while !rows().contains(",all,events,") && child.try_wait().expect("its state").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let kept = rows();
    let resumed: Vec<String> = swept(&killed).into_iter().chain(["--resume".to_owned()]).collect();
    let resumed: Vec<&str> = resumed.iter().map(String::as_str).collect();
    assert!(sim(&resumed).status.success());
    let uninterrupted = swept(&whole);
    assert!(sim(&uninterrupted.iter().map(String::as_str).collect::<Vec<_>>()).status.success());
    let whole = std::fs::read_to_string(&whole).expect("rows");
    assert_eq!(rows(), whole, "as if it had never been stopped");
    let finished = kept.rfind(",all,events,").expect("at least one study");
    assert!(whole.starts_with(&kept[..finished]), "what was finished is kept as it was");
}

#[test]
fn reliefs_applications_run_under_both_orchestrators() {
    let args = ["--spec", "relief", "--set", "run.requests=60", "--runs", "5", "--json"];
    let output = sim(&[&args[..], &["--sweep", "run.application=canny,gru"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for point in found["results"].as_array().expect("points") {
        let names = [0, 1].map(|index| point["architectures"][index]["architecture"].clone());
        assert_eq!(names, ["relief", "accelflow"]);
    }
    let unknown = sim(&["--spec", "relief", "--set", "run.application=x"]);
    let error = text(&unknown.stderr);
    assert!(error.contains("it must be canny, deblur, gru, harris, lstm"), "{error}");
}

#[test]
fn an_overloaded_run_offers_a_window_and_no_percentile() {
    let over = [&SHORT[..], &["--set", "load.total_per_s=60000"]].concat();
    let output = sim(&[&over[..], &["--architecture", "relief"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("relief: no steady state: the manager: "), "{shown}");
    assert!(shown.contains("--set run.window_us="), "{shown}");
}

#[test]
fn json_has_rates_results_and_sources_are_listed() {
    let output = sim(&[&SHORT[..], &["--json"]].concat());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["events_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(found["requests_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    let architectures = &found["results"][0]["architectures"];
    assert_eq!(architectures[1]["architecture"], "accelflow");
    assert_eq!(architectures[1]["report"]["responses"].as_array().map(Vec::len), Some(8));
    let listed = text(&sim(&["--spec", "window", "--sources"]).stdout);
    assert!(listed.contains("costs.manager_ns = 422  # calibrated: decision 0018"), "{listed}");
}

#[test]
fn recorded_arrivals_come_from_a_file_beside_the_specification() {
    let folder = tempfile::tempdir().expect("a folder");
    let (spec, times) = (folder.path().join("own.toml"), folder.path().join("times.txt"));
    let text_of_spec = "base = \"accelflow-steady.toml\"\nname = \"own\"\n[load]\n\
               process = { value = \"recorded\", kind = \"assumed\", source = \"me\" }\n\
               recording = { value = \"times.txt\", kind = \"assumed\", source = \"me\" }\n";
    std::fs::write(&spec, text_of_spec).expect("written");
    let run = |text_of: &str, more: &[&str]| {
        std::fs::write(&times, text_of).expect("written");
        let spec = spec.to_str().expect("text");
        let short = ["--set", "run.requests=2000", "--runs", "5", "--architecture", "accelflow"];
        sim(&[&["--spec", spec][..], &short, more].concat())
    };
    let events = |times: &str| {
        let output = run(times, &["--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        found["results"][0]["architectures"][0]["report"]["events"].as_u64().expect("a count")
    };
    let even: String = (0..2_000).map(|at| format!("{}\n", 100 * at)).collect();
    assert_ne!(events(&even), events("0\n1\n50\n51\n"), "others come at other times");
    let bad = run("0\n7\nseven\n", &[]);
    assert_eq!(bad.status.code(), Some(2));
    let said = format!("{}:3: \"seven\" is no time", times.display());
    assert!(text(&bad.stderr).contains(&said), "{}", text(&bad.stderr));
    let none = run("", &["--set", "load.recording=nowhere.txt"]);
    assert!(text(&none.stderr).contains("load.recording nowhere.txt: "), "{}", text(&none.stderr));
    let none = sim(&["--spec", "steady", "--set", "load.process=recorded"]);
    assert!(text(&none.stderr).contains("it must be the path of a text of ascending times (us)"));
    let relief = ["--spec", "relief", "--set", "load.per_s=100", "--set", "run.requests=60"];
    let recorded = format!("load.recording={}", times.display());
    let recorded = ["--set", "load.process=recorded", "--set", &recorded, "--runs", "5"];
    std::fs::write(&times, "0\n1\n5\n").expect("written");
    let output = sim(&[&relief[..], &recorded].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_page_has_figures_of_services_and_utilisation() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let path = file.to_str().expect("text");
    let swept = ["--sweep", "hardware.pes=4,8", "--report", path];
    let output = sim(&[&SHORT[..], &swept].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(&file).expect("a page");
    for said in ["CPost", "UniqId", "mean of all", "Utilisation", "hardware.pes", "relief", "±"] {
        assert!(page.contains(said), "{said}");
    }
    // The figures are two panels for each of eight services and for all together, and utilisation under two
    // architectures.
    assert_eq!(page.matches("<figure ").count(), 11);
    let nowhere = sim(&[&SHORT[..], &["--report", "/nowhere/page.html"]].concat());
    assert_eq!(nowhere.status.code(), Some(2), "before anything is simulated");
}

#[test]
fn who_asks_for_a_precision_hears_whether_it_was_reached() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows.csv");
    let path = file.to_str().expect("text");
    // There are so few requests that no replication has a percentile.
    let asked = [&SHORT[..], &["--precision", "0.9", "--csv", path]].concat();
    let shown = text(&sim(&asked).stdout);
    let said =
        "accelflow: NOT within 90 % after 5 replications: a replication has too few requests";
    assert!(shown.contains(said), "{shown}");
    let rows = std::fs::read_to_string(&file).expect("rows");
    assert_eq!(rows.matches(",steady,all,precise,0,,\n").count(), 2, "{rows}");
    // Kept results are not shown, and the output says so.
    let output = sim(&[&asked[..], &["--resume"]].concat());
    assert!(text(&output.stdout).contains("already, not shown: 1."), "{}", text(&output.stdout));
    let whole = rows.find("steady,accelflow").expect("the second");
    std::fs::write(&file, &rows[..whole]).expect("written");
    let output = text(&sim(&[&asked[..], &["--resume"]].concat()).stdout);
    assert!(
        output.contains("Kept from before, not shown and in no comparison here: relief."),
        "{output}"
    );
    let output = sim(&[&asked[..], &["--resume", "--json"]].concat());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["kept"][0]["architectures"][1], "accelflow");
}

#[test]
fn errors_name_file_line_key_and_range() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("own.toml");
    let path = file.to_str().expect("text");
    let text_of_spec = "base = \"accelflow.toml\"\nname = \"own\"\n[hardware]\n\
               pes = { value = 999, kind = \"assumed\", source = \"me\" }\n";
    let fault = |text_of: &str, args: &[&str]| {
        std::fs::write(&file, text_of).expect("written");
        let output = sim(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr)
    };
    let error = fault(text_of_spec, &["--spec", path]);
    let expected =
        format!("{path}:4: hardware.pes is 999; it must be a whole number from 1 to 255");
    assert!(error.contains(&expected), "{error}");
    let error = fault(&text_of_spec.replace("pes", "pez"), &["--spec", path]);
    assert!(error.contains(":4: unknown key hardware.pez; did you mean hardware.pes?"), "{error}");
    assert!(fault("x = [", &["--spec", path]).contains(":1: "));
    assert!(fault("", &["--spec", "nowhere.toml"]).contains("compiled in are steady, window"));
    assert!(fault("", &["--spec", "steady", "--set", "a.b=1"]).contains("unknown key a.b"));
    assert!(
        fault("", &["--spec", "steady", "--runs", "4"]).contains("--runs is 4; it must be 5 to")
    );
    let threads = ["--spec", "steady", "--threads", "10000000", "--runs", "5"];
    assert!(fault("", &threads).contains("--threads is 10000000; it must be 1 to 1024"));
    let runs = ["--spec", "steady", "--runs", "4000000000", "--precision", "0.1"];
    assert!(fault("", &runs).contains("--runs is 4000000000"), "it is no panic");
    assert!(fault("", &["--spec", "/dev/zero"]).contains("/dev/zero: more than 1048576 bytes"));
    let error = fault("base = \"/dev/zero\"", &["--spec", path]);
    assert!(error.contains(&format!("{path}:1: /dev/zero: more than 1048576 bytes")), "{error}");
    let error =
        fault("[run]\nx = { value = 1, kind = \"assumed\", source = \"me\" }", &["--spec", path]);
    assert!(
        error.contains(&format!("{path}: ")) && error.contains(" is missing; it must be "),
        "{error}"
    );
    assert!(fault("", &["--spec", "steady", "--architecture", "x"]).contains("there are non-acc"));
}
