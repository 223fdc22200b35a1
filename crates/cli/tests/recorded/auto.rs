//! Recorded cases where they run fastest on paper: with four cards of modelled speed, the same bits as on the processor alone, what is
//! held is what is promised, and no step is slower than where TensorFlow's rules put it.

use std::path::Path;

use plimsoll::placing::Beside;
use plimsoll::{
    Bytes, Certainty, DeviceKind, Devices, Error, HostTensor, Joint, Options, PlacementMode, Result, Session, Signature, config, formats,
    model,
};

use super::{Case, bits, cases, ran};

/// What a case gives; nothing where it cannot be planned, wherever it is.
enum Given {
    Values(Vec<HostTensor>),
    Unplanned,
}

impl Case {
    /// Places all runs by time, and runs them. Counts those with a last run that is faster than by TensorFlow's rules.
    fn run_placed(&self, faster: &mut usize) -> Result<Given> {
        let mut options = Options::new().sim_gpus("4x1GiB,speed=1").placement(PlacementMode::Auto);
        config::apply(&formats::read_config(&model::read_file(&self.folder.join(&self.config))?)?, &mut options)?;
        let devices = Devices::open(&options.device_count(DeviceKind::Cpu, 2).intra_op(2))?;
        let session = devices.load(self.folder.join(&self.graph))?;
        let mut runs = Vec::new();
        let asked = self.each(|feeds, fetches, targets, _| {
            runs.push(session.signature(feeds, fetches, targets)?);
            Ok(())
        });
        if asked.is_err() {
            return Ok(Given::Unplanned);
        }
        let placed = devices.place(&session, &runs, &[])?;
        if let Some(step) = runs.last() {
            let [own, tensorflow] = [&placed.session, &session].map(|session| session.plan_signature(step));
            if let (Some(own), Some(tensorflow)) = (own?.predicted_seconds(), tensorflow?.predicted_seconds()) {
                assert!(own <= tensorflow, "{}: {own} s, {tensorflow} s by TensorFlow's rules", self.name());
                *faster += usize::from(own < tensorflow);
                let least = placed.least_seconds.unwrap_or_default();
                assert!(own >= least * (1.0 - 1e-6), "{}: {own} s, and no placement is below {least} s", self.name());
            }
        }
        let mut values = Vec::new();
        self.each(|feeds, fetches, targets, code| {
            values.extend(ran(placed.session.run(feeds, fetches, targets), code)?);
            placed.session.release_unused();
            Ok(())
        })?;
        for (report, need) in devices.report().iter().zip(placed.footprint.needs()) {
            let holds = match need.certainty {
                Certainty::Exact => report.peak == need.peak,
                Certainty::AtMost => report.peak <= need.peak,
                Certainty::OpenFrom(_) => true,
            };
            if !holds {
                return Err(Error::internal(format!("{}: {} held, {} promised", need.name, report.peak, need.peak)));
            }
        }
        assert!(placed.footprint.needs().iter().any(|need| need.peak > Bytes::ZERO));
        Ok(Given::Values(values))
    }
}

#[test]
fn every_case_gives_the_same_bits_where_it_is_fastest_on_paper() {
    let (mut failures, mut compared, mut faster) = (Vec::new(), 0, 0);
    let all = |values: &[HostTensor]| values.iter().map(bits).collect::<Result<Vec<_>>>();
    for case in &cases() {
        let same = case.run_placed(&mut faster).and_then(|given| match given {
            Given::Values(values) => Ok(Some(all(&values)? == all(&case.run(1, 1)?)?)),
            Given::Unplanned => Ok(None),
        });
        match same {
            Ok(Some(true)) => compared += 1,
            Ok(Some(false)) => failures.push(format!("{}: other bits", case.name())),
            Ok(None) => {}
            Err(error) => failures.push(format!("{}: {error}", case.name())),
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(compared > 50, "only {compared} cases were compared");
    assert!(faster > 50, "only {faster} steps are faster than by TensorFlow's rules");
}

/// Signatures of all runs of a case.
fn signatures(case: &Case, session: &Session) -> Result<Vec<Signature>> {
    let mut runs = Vec::new();
    case.each(|feeds, fetches, targets, _| {
        runs.push(session.signature(feeds, fetches, targets)?);
        Ok(())
    })?;
    Ok(runs)
}

/// Places two networks on two processors with this limit, which holds either but not both, and runs them, one after the other and at the same time.
/// While a network runs, the other one's variables are there: each device then holds just what is promised of both. The values are those of
/// each network by itself.
fn share_two_processors(pair: [&Case; 2]) -> Result<()> {
    let options = || Options::new().placement(PlacementMode::Auto).intra_op(2).fit(false);
    let peak = |case: &Case| -> Result<u64> {
        let devices = Devices::open(&options())?;
        let session = devices.load(case.folder.join(&case.graph))?;
        Ok(devices.place(&session, &signatures(case, &session)?, &[])?.footprint.needs()[0].peak.0)
    };
    let both = peak(pair[0])? + peak(pair[1])?;
    let limit = both * 3 / 4;
    let options = options().device_count(DeviceKind::Cpu, 2).limit("CPU:0", &limit.to_string()).limit("CPU:1", &limit.to_string());
    let open = || -> Result<(Devices, [Session; 2], Joint)> {
        let devices = Devices::open(&options)?;
        let load = |case: &Case| -> Result<(Session, Vec<Signature>)> {
            let session = devices.load(case.folder.join(&case.graph))?;
            let runs = signatures(case, &session)?;
            Ok((session, runs))
        };
        let (one, other) = (load(pair[0])?, load(pair[1])?);
        let beside = [("one", &one), ("other", &other)].map(|(name, (session, runs))| Beside { name, session, runs });
        let placed = devices.place_all(&beside)?;
        let joint = Joint::new(placed.iter().map(|placed| (String::new(), placed.footprint.clone())));
        joint.check_side_by_side()?;
        assert!(joint.needs().iter().all(|need| need.peak > Bytes::ZERO), "both processors hold something: {:?}", joint.needs());
        Ok((devices, [0, 1].map(|index: usize| placed[index].session.clone()), joint))
    };
    let run = |case: &Case, session: &Session, releases: bool| -> Result<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        case.each(|feeds, fetches, targets, code| {
            values.extend(ran(session.run(feeds, fetches, targets), code)?);
            if releases {
                session.release_unused();
            }
            Ok(())
        })?;
        assert!(case.misses(&values).is_empty(), "{:?}", case.misses(&values));
        values.iter().map(bits).collect()
    };
    let (devices, sessions, joint) = open()?;
    let first = run(pair[0], &sessions[0], true)?;
    // What the first leaves is there while the second runs.
    let left: Vec<Bytes> = devices.report().iter().map(|report| report.in_use).collect();
    let second = run(pair[1], &sessions[1], true)?;
    for ((report, need), left) in devices.report().iter().zip(joint.needs()).zip(left) {
        let promised = need.shares[0].max(left + need.shares[1]);
        assert_eq!(report.peak, promised, "{}: {need:?}", report.name);
        assert!(promised <= need.peak && need.peak <= Bytes(limit), "{}: {need:?}", report.name);
    }
    let (devices, sessions, joint) = open()?;
    let [one, other] = std::thread::scope(|scope| {
        [0, 1]
            .map(|index| {
                scope.spawn({
                    let (run, case, session) = (&run, pair[index], &sessions[index]);
                    move || run(case, session, false)
                })
            })
            .map(|run| run.join().unwrap())
    });
    assert!(one? == first && other? == second, "other values at the same time");
    for (report, need) in devices.report().iter().zip(joint.needs()) {
        assert!(report.peak <= need.peak, "{}: {report:?} {need:?}", report.name);
    }
    for (case, values) in pair.into_iter().zip([first, second]) {
        let alone = case.run(1, 1)?.iter().map(bits).collect::<Result<Vec<_>>>()?;
        assert!(alone == values, "{}: other bits", case.name());
    }
    Ok(())
}

#[test]
fn two_networks_share_two_processors_of_which_neither_holds_both() {
    let case = |folder: &Path| Case::read(folder.to_path_buf());
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    share_two_processors([&case(&own.join("mlp_sgd_ref")), &case(&own.join("mlp_adam_resource"))]).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let networks = ["tf1_mnist_cnn_adam", "tf1_mnist_mlp_adam_resource"].map(|name| golden.join(name));
    match networks.iter().all(|folder| folder.join("case.json").exists()) {
        true => share_two_processors([&case(&networks[0]), &case(&networks[1])]).unwrap(),
        false => eprintln!("skipped: no recorded networks in {}", golden.display()),
    }
}
