//! How many towers pay off, and on which cards.

use std::fmt;

use plimsoll::{Code, DeviceKind, DeviceSpec, Error, Result};

/// More towers have to be so many times as fast as fewer: predictions are no better than that.
const CLEARLY: f64 = 1.01;

/// A number of towers that was looked at.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The towers.
    pub towers: u32,
    /// The logical GPUs that they are on, one each; empty where they are on CPUs.
    pub gpus: Vec<u32>,
    /// The predicted seconds of a step with them; an error where there is no such step: the batch cannot be divided among them, or
    /// it does not fit.
    pub seconds: Result<f64>,
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let towers = if self.towers == 1 { "1 tower".to_string() } else { format!("{} towers", self.towers) };
        write!(f, "{towers}{}: ", on_gpus(&self.gpus))?;
        match &self.seconds {
            Ok(seconds) => write!(f, "{:.2} ms a step", seconds * 1e3),
            Err(error) => f.write_str(error.message().lines().next().unwrap_or_default()),
        }
    }
}

/// ` on GPU:1, GPU:0`; nothing without GPUs.
pub fn on_gpus(gpus: &[u32]) -> String {
    let names: Vec<String> = gpus.iter().map(|gpu| format!("GPU:{gpu}")).collect();
    if names.is_empty() { String::new() } else { format!(" on {}", names.join(", ")) }
}

/// Errors that only say that there is no such training.
fn is_none(error: &Error) -> bool {
    matches!(error.code(), Code::InvalidArgument | Code::ResourceExhausted)
}

/// The logical GPUs of some devices, the fastest first: by the seconds of a step of one tower on each. `seconds` is asked once for each kind of
/// GPU. Those on which one tower does not fit come last.
///
/// # Errors
/// Errors of `seconds` other than INVALID_ARGUMENT and RESOURCE_EXHAUSTED.
pub fn fastest_first(devices: &[DeviceSpec], mut seconds: impl FnMut(u32) -> Result<f64>) -> Result<Vec<u32>> {
    let mut kinds: Vec<(DeviceSpec, f64)> = Vec::new();
    let mut found: Vec<(u32, f64)> = Vec::new();
    for (gpu, spec) in (0..).zip(devices.iter().filter(|spec| spec.kind == DeviceKind::Gpu)) {
        let like = kind(spec);
        let known = kinds.iter().find(|(other, _)| *other == like).map(|(_, seconds)| *seconds);
        let seconds = match known.map_or_else(|| seconds(gpu), Ok) {
            Err(error) if is_none(&error) => f64::INFINITY,
            seconds => seconds?,
        };
        if known.is_none() {
            kinds.push((like, seconds));
        }
        found.push((gpu, seconds));
    }
    found.sort_by(|one, other| one.1.total_cmp(&other.1));
    Ok(found.into_iter().map(|(gpu, _)| gpu).collect())
}

/// A GPU without what tells it from others of its kind.
fn kind(spec: &DeviceSpec) -> DeviceSpec {
    let mut like = DeviceSpec { name: Default::default(), description: String::new(), ..spec.clone() };
    if let Some(card) = &mut like.card {
        (card.card, card.priority) = (0, 0);
        card.modelled.iter_mut().for_each(|link| link.peers.clear());
        card.real.iter_mut().for_each(|real| real.link.peers.clear());
    }
    like
}

/// Looks at trainings with one tower up to `most`, all with batches of the same size, on the first of `gpus`, if there are any. `plan`
/// says the predicted seconds of a step of so many on these. The position of the one to take, and what was looked at.
///
/// # Errors
/// Errors of `plan` other than INVALID_ARGUMENT and RESOURCE_EXHAUSTED; where no number is possible, that of one tower.
pub fn replicas(most: u32, gpus: &[u32], mut plan: impl FnMut(u32, &[u32]) -> Result<f64>) -> Result<(usize, Vec<Replicas>)> {
    let mut looked_at = Vec::new();
    let mut best: Option<(usize, f64)> = None;
    for towers in 1..=most.max(1) {
        let on = &gpus[..gpus.len().min(towers as usize)];
        let seconds = plan(towers, on);
        match &seconds {
            Ok(seconds) if best.is_none_or(|(_, least)| seconds * CLEARLY < least) => best = Some((looked_at.len(), *seconds)),
            Err(error) if !is_none(error) => return Err(error.clone()),
            _ => {}
        }
        looked_at.push(Replicas { towers, gpus: on.to_vec(), seconds });
    }
    match best {
        Some((position, _)) => Ok((position, looked_at)),
        None => Err(looked_at.swap_remove(0).seconds.err().unwrap_or_else(|| Error::internal("no number of towers was looked at"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(times: &[Option<f64>]) -> Result<u32> {
        let of = |towers: u32, _: &[u32]| times[towers as usize - 1].ok_or_else(|| Error::invalid_argument(format!("not {towers}")));
        replicas(times.len() as u32, &[], of).map(|(position, all)| all[position].towers)
    }

    #[test]
    fn more_towers_are_taken_where_they_are_clearly_faster() {
        assert_eq!(chosen(&[Some(4.0), Some(2.5), None, Some(1.5)]).unwrap(), 4);
        assert_eq!(chosen(&[Some(4.0), Some(3.99), None, Some(5.0)]).unwrap(), 1);
        assert_eq!(chosen(&[None, Some(3.0), Some(2.99)]).unwrap(), 2);
        assert_eq!(chosen(&[None, None]).unwrap_err().message(), "not 1");
        let other = replicas(2, &[], |_, _| Err(Error::internal("a fault"))).unwrap_err();
        assert_eq!(other.code(), Code::Internal);
    }

    #[test]
    fn the_fastest_gpus_come_first() {
        let cards = "1x1GiB,speed=1+1x1GiB,speed=4+1x1GiB,speed=1+1x512MiB,speed=9+1x1GiB,speed=2";
        let devices = plimsoll::Devices::open(&plimsoll::Options::new().sim_gpus(cards)).unwrap();
        let mut asked = Vec::new();
        let order = fastest_first(devices.specs(), |gpu| {
            asked.push(gpu);
            if gpu == 3 { Err(Error::invalid_argument("no")) } else { Ok(1.0 / devices.specs()[1 + gpu as usize].flops) }
        });
        assert_eq!((order.unwrap(), asked), (vec![1, 4, 0, 2, 3], vec![0, 1, 3, 4]));
        let (chosen, all) = replicas(3, &[1, 4, 0], |towers, on| Ok(if on.contains(&0) { 1.0 } else { 1.0 / f64::from(towers) })).unwrap();
        assert_eq!(all[chosen].to_string(), "2 towers on GPU:1, GPU:4: 500.00 ms a step");
    }
}
