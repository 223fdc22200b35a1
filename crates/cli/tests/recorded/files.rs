//! Every recorded case by plans from files: they are written, read, checked, and give the bits of plans that were made where they run.

use plimsoll::{Bytes, HostTensor, Result};

use super::fitted::THREADS;
use super::{Case, bits, cases, ran};

impl Case {
    /// Runs all steps twice, by a session's own plans and by those that another one has written into files, under these limits. Plans are
    /// made to fit them. How many files there were: a run in stages has none.
    ///
    /// # Errors
    /// What is wrong.
    fn by_files(&self, count: u32, limits: &[Bytes]) -> Result<usize> {
        let (_here, planned) = self.open_with(count, THREADS, limits, true)?;
        let (_there, opened) = self.open_with(count, THREADS, limits, true)?;
        let mut files = 0;
        self.each(|feeds, fetches, targets, code| {
            let signature = match planned.signature(feeds, fetches, targets) {
                Err(error) if code == Some(error.code().name()) => return Ok(()),
                signature => signature?,
            };
            let values = ran(planned.run(feeds, fetches, targets), code)?;
            let by_file = if planned.plan_signature(&signature)?.stages().is_some() {
                opened.run(feeds, fetches, targets)
            } else {
                files += 1;
                let callable = opened.callable_of(&opened.open_plan(&planned.plan_file(&signature)?)?)?;
                callable.run(&feeds.iter().map(|(_, value)| value).collect::<Vec<_>>())
            };
            same(&values, &ran(by_file, code)?)?;
            planned.release_unused();
            opened.release_unused();
            Ok(())
        })?;
        Ok(files)
    }
}

/// # Errors
/// INTERNAL where the bits of two runs are not the same.
fn same(one: &[HostTensor], other: &[HostTensor]) -> Result<()> {
    let [one, other] = [one, other].map(|values| values.iter().map(bits).collect::<Result<Vec<_>>>());
    if one? == other? { Ok(()) } else { Err(plimsoll::Error::internal("other bits by the file")) }
}

#[test]
fn every_case_gives_the_same_bits_by_plans_from_files() {
    let (mut failures, mut files) = (Vec::new(), 0);
    for case in &cases() {
        let mut check = |what: &str, count: Result<usize>| match count {
            Ok(count) => files += count,
            Err(error) => failures.push(format!("{} {what}: {error}", case.name())),
        };
        check("on two devices", case.by_files(2, &[]));
        // What planning changes in loops under a limit, it makes constants for.
        let is_loop = case.name().starts_with("while_") || case.name().starts_with("frame_");
        if is_loop && let Ok(Some(least)) = case.promised_fitted(1, &[Bytes(1)]) {
            check("under the least limit", case.by_files(1, &least));
        }
    }
    assert!(files > 300, "only {files} files");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
