//! Agreement with the public Accelerometer program on random inputs, to 1e-4 of the speedup. Runs when
//! `ACCELEROMETER_PROGRAM` names its binary (`g++ -std=c++11 -o accelerometer accelerometer.cc` in a clone of
//! akshithasriraman/Accelerometer) and says so when it does not.

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
    // The file has six digits; the program reads no more than those.
    let alpha = (prng.unit() * 0.99 * 1e6).round() / 1e6;
    Parameters::new(Values { alpha, a: values.a.max(1.0), ..values }).expect("within the ranges")
}

/// The program's speedup and the text of its percentage.
fn ask(program: &Path, folder: &Path, p: &Parameters, threading: Threading) -> (f64, String) {
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
    let percent = percent.unwrap_or_else(|| panic!("it said {said:?}"));
    (1.0 + percent.parse::<f64>().expect("a number") / 100.0, percent.to_owned())
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
    for case in 0..CASES {
        let p = random(&mut prng);
        let threading = [Threading::Sync, Threading::SyncOs, Threading::Async][case % 3];
        let (theirs, text) = ask(program.as_ref(), folder.path(), &p, threading);
        let design = Design::new(threading, Strategy::OffChip).with_variant(Variant::PublicProgram);
        let ours = speedup(&p, &design);
        worst = worst.max((ours / theirs - 1.0).abs());
        assert!((ours / theirs - 1.0).abs() < 1e-4, "{threading} {p:?}: {ours} not {theirs}");
        // Both in single precision: the printed percentage agrees as far as its six digits go.
        let percent = PublicProgram::from(&p).percent(threading);
        let printed: f64 = text.parse().expect("a number");
        let apart = (percent - printed).abs() / printed.abs().max(1e-3);
        worst_percent = worst_percent.max(apart);
        assert!(apart < 1e-4, "{threading} {p:?}: {percent} % not {printed} %");
        if threading != Threading::SyncOs {
            let exact = speedup(&p, &design.with_variant(Variant::Equations));
            assert!((exact / theirs - 1.0).abs() < 1e-4, "{threading} {p:?}: {exact} not {theirs}");
        }
    }
    println!("{CASES} cases: speedup within {worst:.1e}, percentage within {worst_percent:.1e}");
}
