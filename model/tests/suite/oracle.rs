//! Tests that the model agrees with the public Accelerometer program on random inputs, to 1e-4 of the speedup. The
//! recorded answers of the program to some inputs are always compared (`oracle/recorded.txt`). If
//! `ACCELEROMETER_PROGRAM` names the program's binary (`g++ -std=c++11 -o accelerometer accelerometer.cc` in a clone of
//! akshithasriraman/Accelerometer), all inputs are compared with the program itself. Otherwise the test prints that it
//! skips this comparison. `ACCELEROMETER_RECORD` names a file to which the answers are written.

use std::path::Path;
use std::process::Command;

use model::equations::speedup;
use model::program::PublicProgram;
use model::{Design, Parameters, Strategy, Threading, Values, Variant};
use units::Prng;

const CASES: usize = 600;

fn random(prng: &mut Prng) -> Parameters {
    let mut decades = |low: f64, high: f64| 10f64.powf(low + (high - low) * prng.unit()).trunc();
    let values = Values {
        c: decades(8.0, 10.5),
        n: decades(0.0, 5.0),
        o0: decades(0.0, 4.0),
        q: decades(0.0, 4.0),
        l: decades(0.0, 4.0),
        o1: decades(0.0, 4.0),
        a: decades(0.0, 2.0) + 0.5,
        alpha: 0.0,
    };
    // The program's input file has six digits, and the program reads no more than six.
    let alpha = (prng.unit() * 0.99 * 1e6).round() / 1e6;
    Parameters::new(Values { alpha, a: values.a.max(1.0), ..values }).expect("within the ranges")
}

/// Runs the program and returns the text of the percentage that it prints.
fn ask(program: &Path, folder: &Path, p: &Parameters, threading: Threading) -> String {
    let v = p.values();
    let file = folder.join("parameters.txt");
    let text = format!(
        "C {}\na {}\nn {}\no0 {}\nQ {}\nL {}\no1 {}\nA {}\nThreading {threading}\n",
        v.c, v.alpha, v.n, v.o0, v.q, v.l, v.o1, v.a
    );
    std::fs::write(&file, text).expect("the folder is ours");
    let output = Command::new(program).arg(&file).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let percent = said.split("= ").nth(1).and_then(|rest| rest.split('%').next());
    percent.unwrap_or_else(|| panic!("it said {said:?}")).to_owned()
}

/// Returns the relative difference of our speedup and of our percentage from the program's, and checks the bound.
fn compare(p: &Parameters, threading: Threading, text: &str) -> (f64, f64) {
    let printed: f64 = text.parse().expect("a number");
    let theirs = 1.0 + printed / 100.0;
    let design = Design::new(threading, Strategy::OffChip).with_variant(Variant::PublicProgram);
    let ours = speedup(p, &design);
    let apart = (ours / theirs - 1.0).abs();
    assert!(apart < APART_MAX, "{threading} {p:?}: {ours} not {theirs}");
    // Both are in single precision, so the percentages agree to the six digits that are printed.
    let percent = PublicProgram::from(p).percent(threading);
    let percent_apart = (percent - printed).abs() / printed.abs().max(1e-3);
    assert!(percent_apart < APART_MAX, "{threading} {p:?}: {percent} % not {printed} %");
    if threading != Threading::SyncOs {
        let exact = speedup(p, &design.with_variant(Variant::Equations));
        let apart = (exact / theirs - 1.0).abs();
        assert!(apart < APART_MAX, "{threading} {p:?}: {exact} not {theirs}");
    }
    (apart, percent_apart)
}

const APART_MAX: f64 = 1e-4;
const THREADING: [Threading; 3] = [Threading::Sync, Threading::SyncOs, Threading::Async];

/// Each line has C, alpha, n, o0, Q, L, o1, A, the threading design, and the percentage that the program printed.
const RECORDED: &str = include_str!("oracle/recorded.txt");

#[test]
fn what_the_public_program_answered_is_what_we_answer() {
    let mut count = 0;
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [numbers @ .., threading, printed] = fields.as_slice() else { panic!("{line:?}") };
        let number = |text: &&str| text.parse::<f64>().expect("a number");
        let numbers: Vec<f64> = numbers.iter().map(number).collect();
        let [c, alpha, n, o0, q, l, o1, a] = numbers[..] else { panic!("{line:?}") };
        let values = Values { c, alpha, n, o0, q, l, o1, a };
        let p = Parameters::new(values).expect("within the ranges");
        let threading: Threading = threading.parse().expect("a threading");
        compare(&p, threading, printed);
        count += 1;
    }
    assert!(count >= 100, "{count} answers");
}

#[test]
fn the_public_program_agrees() {
    let Some(program) = std::env::var_os("ACCELEROMETER_PROGRAM") else {
        eprintln!("SKIPPED: ACCELEROMETER_PROGRAM does not name the public program's binary");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut prng = Prng::new(2020);
    let (mut worst, mut worst_percent) = (0f64, 0f64);
    let mut answers = String::new();
    for case in 0..CASES {
        let p = random(&mut prng);
        let threading = THREADING[case % 3];
        let text = ask(program.as_ref(), folder.path(), &p, threading);
        let (apart, percent_apart) = compare(&p, threading, &text);
        (worst, worst_percent) = (worst.max(apart), worst_percent.max(percent_apart));
        let Values { c, alpha, n, o0, q, l, o1, a } = *p.values();
        answers += &format!("{c} {alpha} {n} {o0} {q} {l} {o1} {a} {threading} {text}\n");
    }
    println!("{CASES} cases: speedup within {worst:.1e}, percentage within {worst_percent:.1e}");
    if let Some(file) = std::env::var_os("ACCELEROMETER_RECORD") {
        std::fs::write(file, answers).expect("the file can be written");
    }
}
