//! Recorded cases under limits that are too low for their plans as they are: the same bits, and the line holds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::{Bytes, Certainty, Code, Error, Footprint, HostTensor, Result};

use super::{Case, bits, cases, ran};

/// Scratch of a kernel has a slice for each thread, so a promise is one for so many.
pub(super) const THREADS: i32 = 2;

/// How many steps there are from the least limit to the peak: `PLIMSOLL_LINES`, or few.
fn lines() -> u64 {
    std::env::var("PLIMSOLL_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(2)
}

impl Case {
    /// What the devices are promised to hold, with plans that are made to fit these limits; none where the promise is not exact.
    pub(super) fn promised_fitted(&self, devices: u32, limits: &[Bytes]) -> Result<Option<Vec<Bytes>>> {
        let (devices, session) = self.open_with(devices, THREADS, limits, true)?;
        let mut footprint = Footprint::new(devices.specs());
        self.each(|feeds, fetches, targets, _| {
            let signature = session.signature(feeds, fetches, targets)?;
            footprint.add(&session.plan_signature(&signature)?);
            Ok(())
        })?;
        let is_exact = footprint.needs().iter().all(|need| need.certainty == Certainty::Exact);
        Ok(is_exact.then(|| footprint.needs().iter().map(|need| need.peak).collect()))
    }

    /// Runs with these limits: what it holds, and its values.
    fn run_fitted(&self, count: u32, limits: &[Bytes]) -> Result<(Vec<Bytes>, Vec<HostTensor>)> {
        let (devices, session) = self.open_with(count, THREADS, limits, true)?;
        let mut values = Vec::new();
        self.each(|feeds, fetches, targets, code| {
            values.extend(ran(session.run(feeds, fetches, targets), code)?);
            session.release_unused();
            Ok(())
        })?;
        Ok((devices.report().iter().map(|report| report.peak).collect(), values))
    }

    /// Runs with limits from the least that plans can be made to fit to what they take as they are. The bits are the same. What is held
    /// is what is promised, and never falls as limits rise. One byte below the least is refused. Returns 1 where the least is below the
    /// peaks, else 0.
    ///
    /// # Errors
    /// What is wrong.
    fn at_lower_lines(&self, count: u32) -> Result<usize, String> {
        let text = |error: Error| error.to_string();
        let (highest, expected) = self.run_fitted(count, &[]).map_err(text)?;
        let expected = expected.iter().map(bits).collect::<Result<Vec<_>>>().map_err(text)?;
        // Nothing fits one byte: plans are as low as they go.
        let least = self.promised_fitted(count, &vec![Bytes(1); count as usize]).map_err(text)?;
        let Some(least) = least.filter(|least| *least != highest) else { return Ok(0) };
        let mut before: Option<Vec<Bytes>> = None;
        for part in 0..=lines() {
            let between = least.iter().zip(&highest).map(|(least, highest)| Bytes(least.0 + (*highest - *least).0 * part / lines()));
            let limits: Vec<Bytes> = between.collect();
            let promised = self.promised_fitted(count, &limits).map_err(text)?;
            let (held, values) = self.run_fitted(count, &limits).map_err(|error| format!("limits {limits:?}: {error}"))?;
            if promised.as_ref() != Some(&held) || held.iter().zip(&limits).any(|(held, limit)| held > limit) {
                return Err(format!("limits {limits:?}: held {held:?}, promised {promised:?}"));
            }
            if values.iter().map(bits).collect::<Result<Vec<_>>>().map_err(text)? != expected {
                return Err(format!("limits {limits:?}: other bits"));
            }
            if count == 1 && before.as_ref().is_some_and(|before| *before > held) {
                return Err(format!("limits {limits:?}: held {held:?}, with lower ones {before:?}"));
            }
            before = Some(held);
        }
        if let [least] = least[..] {
            match self.run_fitted(1, &[Bytes(least.0 - 1)]) {
                Err(error) if error.code() == Code::ResourceExhausted => {}
                other => return Err(format!("one byte below the least, {least}: {other:?}")),
            }
        }
        Ok(1)
    }
}

/// The cases go to two threads: no other test takes as long.
#[test]
fn every_case_gives_the_same_bits_at_every_line() {
    let cases = cases();
    let tried: Vec<(&Case, u32)> = cases.iter().flat_map(|case| [(case, 1), (case, 2)]).collect();
    let (next, fitted, failures) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let some = || {
        while let Some((case, devices)) = tried.get(next.fetch_add(1, Ordering::Relaxed)) {
            match case.at_lower_lines(*devices) {
                Ok(count) => drop(fitted.fetch_add(count, Ordering::Relaxed)),
                Err(reason) => failures.lock().unwrap().push(format!("{} on {devices} devices: {reason}", case.name())),
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(some))));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let fitted = fitted.into_inner();
    assert!(fitted > 10, "only {fitted} cases take less where they have to");
}
