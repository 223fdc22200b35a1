//! Recorded cases where they run fastest on paper: with four cards of modelled speed, the same bits as on the processor alone, what is
//! held is what is promised, and no step is slower than where TensorFlow's rules put it.

use plimsoll::{Bytes, Certainty, DeviceKind, Devices, Error, HostTensor, Options, PlacementMode, Result, config, formats, model};

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
