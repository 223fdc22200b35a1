//! The peaks of a model for every N.

use std::path::Path;

use plimsoll::signature::{Growth, SignatureInN, node_of, shape_in_n};
use plimsoll::{Devices, Signature, page};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{Result, wrong_use};
use crate::models::Opened;
use crate::output;

/// How the answer is printed.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// As one JSON document.
    pub json: bool,
    /// As the largest N alone.
    pub largest: bool,
    /// A file for a page.
    pub html: Option<&'a Path>,
    /// A file for a drawing of the largest N that fits; of the smallest, where none does.
    pub svg: Option<&'a Path>,
}

/// Plans the model for N = 1, 2, 4 and so on. Exit status 1 where the smallest does not fit.
pub fn run(devices: &Devices, model: &Opened, init: Option<&Signature>, signature: &SignatureInN, how: How<'_>) -> Result<ExitCode> {
    let growth = devices.growth(&model.session, init, signature).map_err(|error| error.context(&model.label))?;
    let shape = |feed: &plimsoll::signature::Unfilled| (model.argument_of(node_of(&feed.name)), shape_in_n(&feed.shape));
    let feeds: Vec<(String, String)> = signature.sized.iter().map(shape).collect();
    if how.html.is_some() || how.svg.is_some() {
        let feed = |name: &str| model.argument_of(name);
        let picture = devices.picture_of_growth(&model.label, &model.session, init, signature, &growth, feed)?;
        if let Some(path) = how.html {
            output::file(path, &picture.html())?;
        }
        if let (Some(path), Some(last)) = (how.svg, picture.models.last()) {
            output::file(path, &page::svg::memory(last, &last.name).unwrap_or_default())?;
        }
    }
    match how {
        How { json: true, .. } => output::result_json(&Document::new(feeds, &growth))?,
        How { largest: true, .. } => match growth.largest {
            Some(largest) => {
                output::result(largest)?;
                growth.said_of_gaps().into_iter().for_each(output::note);
            }
            None if growth.fits() => return wrong_use("--largest-batch: no limit is met; give one, as --memory-limit CPU:0=64MiB"),
            None => growth.sizes.first().map_or(Ok(()), |(_, footprint)| footprint.check())?,
        },
        _ => {
            let feeds: Vec<String> = feeds.iter().map(|(name, shape)| format!("{name} {shape}")).collect();
            output::result(format!("feeds: {}\n{growth}", feeds.join(", ")))?;
        }
    }
    Ok(ExitCode::from(u8::from(!growth.fits())))
}

#[derive(Serialize)]
struct Document {
    /// Whether the smallest N fits.
    fits: bool,
    feeds: Vec<FeedEntry>,
    /// In ascending order: 1, 2, 4 and so on, the largest that fits and the next one.
    sizes: Vec<SizeEntry>,
    /// Null where the smallest N does not fit, and where no line is met.
    largest_n: Option<u64>,
    /// Smaller N that were tried and do not fit.
    smaller_that_do_not_fit: Vec<u64>,
    /// The graph takes multiples of this N.
    step: u64,
    /// The smallest limit that is enough for the smallest N.
    minimum_limit_bytes: u64,
}

#[derive(Serialize)]
struct FeedEntry {
    name: String,
    /// `[N,224,224,3]`.
    shape: String,
}

#[derive(Serialize)]
struct SizeEntry {
    n: u64,
    fits: bool,
    /// A limit that is enough for this N: what its plan takes.
    minimum_limit_bytes: u64,
    devices: Vec<DeviceEntry>,
}

#[derive(Serialize)]
struct DeviceEntry {
    name: String,
    limit_bytes: Option<u64>,
    peak_bytes: u64,
}

impl Document {
    fn new(feeds: Vec<(String, String)>, growth: &Growth) -> Document {
        let sizes = growth.sizes.iter().map(|(n, footprint)| SizeEntry {
            n: *n,
            fits: footprint.check().is_ok(),
            minimum_limit_bytes: footprint.minimum_limit().0,
            devices: footprint
                .needs()
                .iter()
                .map(|need| DeviceEntry { name: need.name.clone(), limit_bytes: need.limit.map(|limit| limit.0), peak_bytes: need.peak.0 })
                .collect(),
        });
        let sizes: Vec<SizeEntry> = sizes.collect();
        Document {
            fits: growth.fits(),
            feeds: feeds.into_iter().map(|(name, shape)| FeedEntry { name, shape }).collect(),
            minimum_limit_bytes: sizes.first().map_or(0, |size| size.minimum_limit_bytes),
            sizes,
            largest_n: growth.largest,
            smaller_that_do_not_fit: growth.gaps.clone(),
            step: growth.step,
        }
    }
}
