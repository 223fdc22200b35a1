//! Which cards, and in which order.

use plimsoll_base::{Error, Result};
use plimsoll_device::DeviceName;

use super::logical::{Card, LeftOut};
use crate::{Environment, PhysicalDevice};

/// The fewest multiprocessors that a card needs where a better one is seen.
const ENOUGH_MULTIPROCESSORS: u32 = 8;

/// The cards that a process sees, as the driver has it. They are fastest first unless CUDA_DEVICE_ORDER is `PCI_BUS_ID`.
/// CUDA_VISIBLE_DEVICES chooses among them and orders them, by number or by the beginning of a UUID. The list ends at the first
/// entry that is no card; one that lists a card twice shows none. Without it, the cards of a Slurm allocation are seen. Says in `notes`
/// which cards were hidden.
pub fn seen(physical: &[PhysicalDevice], environment: &Environment, notes: &mut Vec<String>) -> Vec<Card> {
    if physical.is_empty() {
        // The variables are those of a machine with cards; there is nothing to say of them here.
        return Vec::new();
    }
    let mut order: Vec<&PhysicalDevice> = physical.iter().collect();
    order.sort_by_key(|device| device.ordinal);
    if environment.get("CUDA_DEVICE_ORDER").map(str::trim) != Some("PCI_BUS_ID") {
        order.sort_by(|a, b| b.peak_flops().total_cmp(&a.peak_flops()));
    }
    let card = |(ordinal, device): (usize, &&PhysicalDevice)| Card { ordinal: ordinal as u32, device: (*device).clone() };
    let Some(list) = environment.get("CUDA_VISIBLE_DEVICES") else {
        if let Some((variable, list, numbers)) = allocated(physical, environment) {
            order.retain(|device| numbers.contains(&device.ordinal));
            if order.len() < physical.len() {
                notes.push(format!("{variable}={list} shows {} of {} cards", order.len(), physical.len()));
            }
        }
        return order.iter().enumerate().map(card).collect();
    };
    let mut chosen: Vec<&PhysicalDevice> = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let Some(device) = find(entry, &order) else {
            if !matches!(list.trim(), "" | "-1") {
                notes.push(format!(
                    "CUDA_VISIBLE_DEVICES={list} ends at '{entry}', which is not a card: the cards after it are not visible"
                ));
            }
            break;
        };
        if chosen.iter().any(|other| other.ordinal == device.ordinal) {
            notes.push(format!("CUDA_VISIBLE_DEVICES={list} lists a card twice: no card is seen"));
            chosen.clear();
            break;
        }
        chosen.push(device);
    }
    if chosen.len() < order.len() {
        notes.push(format!("CUDA_VISIBLE_DEVICES={list} shows {} of {} cards", chosen.len(), order.len()));
    }
    chosen.iter().enumerate().map(card).collect()
}

/// The cards that Slurm has given to this step, or to its job: the variable, its text, and the cards' numbers in the order of the bus.
/// A list that names a card which is not there is that of a machine whose other cards are kept out of sight: it says nothing.
fn allocated<'a>(physical: &[PhysicalDevice], environment: &'a Environment) -> Option<(&'static str, &'a str, Vec<u32>)> {
    let (variable, list) = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"].into_iter().find_map(|name| Some((name, environment.get(name)?)))?;
    let numbers: Vec<u32> = list.split(',').map(|entry| entry.trim().parse().ok()).collect::<Option<_>>()?;
    let is_there = |number: &u32| physical.iter().any(|device| device.ordinal == *number);
    numbers.iter().all(is_there).then_some((variable, list, numbers))
}

/// The card that an entry of CUDA_VISIBLE_DEVICES means: the one UUID that begins so, or a number, read as far as it has digits.
fn find<'a>(entry: &str, order: &[&'a PhysicalDevice]) -> Option<&'a PhysicalDevice> {
    if entry.starts_with("GPU-") {
        let mut matching = order.iter().filter(|device| device.uuid.starts_with(entry));
        return matching.next().filter(|_| matching.next().is_none()).copied();
    }
    let digits = entry.find(|c: char| !c.is_ascii_digit()).unwrap_or(entry.len());
    order.get(entry[..digits].parse::<usize>().ok()?).copied()
}

/// Parses a `visible_device_list` against `count` cards: numbers, or `TYPE:NUMBER`, between commas; empty for all in their order.
/// With a `device_type`, entries of another type are passed over; without, as for CUDA, the type is not looked at. So is
/// number −1 passed over, as TensorFlow does.
///
/// # Errors
/// INVALID_ARGUMENT for an entry that is none, a number of no card, and a card listed twice.
pub fn visible_device_list(list: &str, count: u32, device_type: Option<&str>) -> Result<Vec<u32>> {
    if list.is_empty() {
        return Ok((0..count).collect());
    }
    let mut order = Vec::new();
    for entry in list.split(',') {
        let number = |text: &str| text.trim().parse::<i32>().ok();
        let typed = || entry.split_once(':').and_then(|(kind, id)| Some((Some(kind.trim()), number(id)?)));
        let Some((kind, id)) = number(entry).map(|id| (None, id)).or_else(typed) else {
            return Err(Error::invalid_argument(format!(
                "Could not parse entry in 'visible_device_list': '{entry}'. visible_device_list = {list}"
            )));
        };
        let other_type = kind.is_some_and(|kind| device_type.is_some_and(|wanted| wanted != kind));
        if id == -1 || other_type {
            continue;
        }
        match u32::try_from(id).ok().filter(|&id| id < count) {
            Some(id) => order.push(id),
            None => {
                return Err(Error::invalid_argument(format!(
                    "'visible_device_list' listed an invalid Device id '{id}' but visible device count is {count}"
                )));
            }
        }
    }
    let distinct: std::collections::BTreeSet<u32> = order.iter().copied().collect();
    if distinct.len() != order.len() {
        return Err(Error::invalid_argument(format!("visible_device_list contained a duplicate entry: {list}")));
    }
    Ok(order)
}

/// Of the cards in `order`, those that can be used; the others with the reason.
pub(super) fn usable(order: Vec<Card>, environment: &Environment, notes: &mut Vec<String>) -> (Vec<Card>, Vec<LeftOut>) {
    let most = order.iter().map(|card| card.device.multiprocessors).max().unwrap_or(0);
    let mut enough = most.min(ENOUGH_MULTIPROCESSORS);
    const VARIABLE: &str = "TF_MIN_GPU_MULTIPROCESSOR_COUNT";
    if let Some(value) = environment.get(VARIABLE).filter(|value| !value.is_empty()) {
        match environment.number(VARIABLE).and_then(|number| i32::try_from(number).ok()).and_then(|number| u32::try_from(number).ok()) {
            Some(number) => enough = number,
            None => notes.push(format!("{VARIABLE}={value} is not a number of multiprocessors: {enough} is used")),
        }
    }
    let (mut usable, mut left_out) = (Vec::new(), Vec::new());
    for card in order {
        let (capability, minimum) = (card.device.compute_capability, card.device.minimum_capability());
        if let Some(why) = &card.device.unusable {
            let why = why.clone();
            left_out.push(LeftOut { card, why });
        } else if capability < minimum {
            let why = format!("with Cuda compute capability {capability}. The minimum required Cuda capability is {minimum}.");
            left_out.push(LeftOut { card, why });
        } else if card.device.multiprocessors < enough {
            let why = format!(
                "with core count: {}. The minimum required count is {enough}. You can adjust this requirement with the env var {VARIABLE}.",
                card.device.multiprocessors
            );
            left_out.push(LeftOut { card, why });
        } else {
            usable.push(card);
        }
    }
    (usable, left_out)
}

/// Whether `device_filters` let GPUs be made: they do unless some name device types and none of those is `GPU`.
///
/// # Errors
/// INVALID_ARGUMENT for a filter that is no device name.
pub(super) fn gpus_pass(filters: &[String]) -> Result<bool> {
    let mut kinds = Vec::new();
    for filter in filters {
        let name = DeviceName::parse_full_or_local(filter).map_err(|error| {
            Error::invalid_argument(format!("Invalid device filter: {filter}")).with_remedy(error.remedy().unwrap_or_default())
        })?;
        kinds.extend(name.kind);
    }
    Ok(kinds.is_empty() || kinds.iter().any(|kind| kind == "GPU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_chooses_cards_where_nothing_else_does() {
        let physical = PhysicalDevice::simulated("cards", "4x1GiB").unwrap();
        let seen = |variables: &[(&str, &str)]| {
            let environment = variables.iter().fold(Environment::new(), |environment, (name, value)| environment.with(name, value));
            let mut notes = Vec::new();
            let cards: Vec<u32> = seen(&physical, &environment, &mut notes).iter().map(|card| card.device.ordinal).collect();
            (cards, notes.len())
        };
        assert_eq!(seen(&[("SLURM_JOB_GPUS", "1,3")]), (vec![1, 3], 1));
        assert_eq!(seen(&[("SLURM_JOB_GPUS", "1,3"), ("SLURM_STEP_GPUS", "3")]), (vec![3], 1));
        assert_eq!(seen(&[("SLURM_JOB_GPUS", "1,3"), ("CUDA_VISIBLE_DEVICES", "2")]), (vec![2], 1));
        // The numbers are those of the node, of which this process sees a part.
        assert_eq!(seen(&[("SLURM_JOB_GPUS", "6,7")]), (vec![0, 1, 2, 3], 0));
        assert_eq!(seen(&[("SLURM_JOB_GPUS", "all")]), (vec![0, 1, 2, 3], 0));
    }
}
