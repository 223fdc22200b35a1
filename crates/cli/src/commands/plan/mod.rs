//! `plimsoll plan`: does it fit, where does everything go, and how big is it.

mod document;
mod growth;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use plimsoll::fit::CurvePoint;
use plimsoll::page::{self, Picture};
use plimsoll::placing::{Beside, Compared};
use plimsoll::share::terminal;
use plimsoll::{Bytes, Devices, Error, Footprint, Joint, Pass, Plan, Signature};

use self::document::{CurveEntry, Document, PeakEntry, PlacementEntry};
use crate::device_options::DeviceOptions;
use crate::exit_code::ExitCode;
use crate::failure::{Result, wrong_use};
use crate::names::Sized;
use crate::requests::{AskedArgs, Requested, Requests, requests};
use crate::{load, output, outputs};

/// The models, and the request to them.
#[derive(Args)]
pub struct PlanArgs {
    /// GraphDefs (.pb, .pbtxt), MetaGraphs (.meta) or SavedModel folders; several are planned side by side and in
    /// turn. A name below is then for every model that has it, and MODEL::NAME for one: its path, its file's name with or without
    /// extension, or its number from 1
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    asked: AskedArgs,
    /// Compute once what the model computes from variables and constants alone, and keep it in their place: batch norms become part of
    /// the convolutions before them; the answer covers that
    #[arg(long)]
    freeze: bool,
    /// What less memory costs: for ten limits between the least that a device can do with and what the plan takes as it is, the time of a
    /// step
    #[arg(long)]
    curve: bool,
    /// Print the largest N that fits the limits, and nothing else: the largest batch
    #[arg(long, conflicts_with = "curve")]
    largest_batch: bool,
    /// Several models: exit status 1 where they do not fit side by side, also where they fit in turn
    #[arg(long)]
    together: bool,
    /// Print what there is after this pass of the planner instead: lower, soften, patch, transfer, fuse, select, hazard, order, fit or
    /// pack
    #[arg(long, value_name = "PASS")]
    after: Option<String>,
    /// A file for the plan, which `eval --plan` runs; for one model
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a page to look at: memory over the step with every buffer, queues over predicted time, and what less memory costs. One file
    /// that any browser shows. Where a dimension is N, it has the peaks of every N, and the plans of three: the smallest, one in the
    /// middle and the largest that fits
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the memory over the step of the device that takes most as a picture (SVG); for one model. Where a dimension is N, that of the
    /// largest N that fits
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Plans. Exit status 1 where it does not fit; of several models where one does not fit by itself, and with `--together` where they
/// do not fit side by side.
pub fn run(args: PlanArgs, options: &DeviceOptions, json: bool) -> Result<ExitCode> {
    if (args.output.is_some() || args.svg.is_some()) && args.models.len() > 1 {
        return wrong_use("--output and --svg are for the plan of one model");
    }
    outputs::check([("--output", args.output.as_ref()), ("--html", args.html.as_ref()), ("--svg", args.svg.as_ref())])?;
    let options = &DeviceOptions { freeze: args.freeze, ..options.clone() };
    let after = args.after.as_deref().map(str::parse::<Pass>).transpose()?;
    if after.is_some() && json {
        return Err(Error::invalid_argument("--after prints text, and --json one document").into());
    }
    let devices = load::devices_to_plan_for(options)?;
    let requests = requests(&devices, &args.models, &args.asked)?;
    if let ([model], [Requested { init, signature: Sized::InN(signature) }]) = (requests.models.all(), &requests.all[..]) {
        if args.output.is_some() || after.is_some() || args.curve {
            return wrong_use("--output, --after and --curve are for one plan: give every feed a shape, as --feed-shape x=32x6");
        }
        let how = growth::How { json, largest: args.largest_batch, html: args.html.as_deref(), svg: args.svg.as_deref() };
        return growth::run(&devices, model, init.as_ref(), signature, how);
    }
    if args.largest_batch {
        return wrong_use("--largest-batch is for one model with a dimension that is open: leave its --feed-shape out, or write N there");
    }
    let planned = plans(&devices, &args, requests, after)?;
    if after.is_some() {
        planned.into_iter().try_for_each(|planned| output::result(planned.text.trim_end()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let drawn = pictures(&args, json, &planned)?;
    let fitted = Fitted {
        minimums: planned.iter().map(|planned| planned.minimum).collect(),
        curves: if args.curve { curves(&planned) } else { Vec::new() },
        placements: planned.iter().flat_map(placements).collect(),
    };
    let (plans, footprints): (Vec<Plan>, Vec<Footprint>) = planned.into_iter().map(|planned| (planned.plan, planned.footprint)).unzip();
    let names: Vec<String> = args.models.iter().map(|model| model.display().to_string()).collect();
    let joint = Joint::new(names.iter().cloned().zip(footprints.iter().cloned()));
    let document = Document::new(&names, &plans, &joint, &fitted, args.together);
    if json {
        output::result_json(&document)?;
    } else {
        output::result(text(&names, &plans, &document, &joint) + &drawn)?;
    }
    Ok(ExitCode::from(u8::from(!document.answer.fits)))
}

/// A model, planned.
struct Planned {
    label: String,
    /// The step's plan.
    plan: Plan,
    /// The model's footprint over all runs.
    footprint: Footprint,
    /// The smallest limit for them.
    minimum: Bytes,
    /// For each device what less memory costs, where that was asked for.
    curves: Vec<(String, Vec<CurvePoint>)>,
    /// The text after a pass, where one was asked for.
    text: String,
    /// What the rules of placement come to, where it was placed by time.
    compared: Vec<Compared>,
}

/// What is known of other limits.
struct Fitted {
    /// For each model, the smallest limit for it alone.
    minimums: Vec<Bytes>,
    curves: Vec<CurveEntry>,
    placements: Vec<PlacementEntry>,
}

/// What the rules of placement come to for a model.
fn placements(planned: &Planned) -> impl Iterator<Item = PlacementEntry> + '_ {
    planned.compared.iter().map(|compared| PlacementEntry {
        model: planned.label.clone(),
        placement: compared.rule,
        fits: compared.fits,
        made_to_fit: compared.is_fitted,
        predicted_step_seconds: compared.seconds,
        predicted_interval_seconds: compared.interval,
        moved_bytes: compared.moved.0,
        devices: compared.footprint.needs().iter().map(|need| PeakEntry { name: need.name.clone(), peak_bytes: need.peak.0 }).collect(),
        text: compared.text.clone(),
    })
}

/// The curves of the models.
fn curves(planned: &[Planned]) -> Vec<CurveEntry> {
    let several = planned.len() > 1;
    let mut entries = Vec::new();
    for planned in planned {
        for (device, points) in &planned.curves {
            entries.extend(points.iter().map(|point| CurveEntry {
                device: device.clone(),
                limit_bytes: point.limit.0,
                peak_bytes: point.peak.0,
                predicted_step_seconds: point.seconds,
                recomputed: point.recomputed,
                offloaded_bytes: point.offloaded.0,
                masked: point.masked,
                parts: point.parts,
                segments: point.segments,
                model: several.then(|| planned.label.clone()),
            }));
        }
    }
    entries
}

/// Every model, planned.
fn plans(devices: &Devices, args: &PlanArgs, requests: Requests, after: Option<Pass>) -> Result<Vec<Planned>> {
    let mut asked: Vec<(Signature, Vec<Signature>)> = Vec::with_capacity(args.models.len());
    for (model, Requested { init, signature }) in requests.models.all().iter().zip(requests.all) {
        let Sized::Whole(signature) = signature else {
            let shapes = "a shape for each of its feeds, as --feed-shape x=32x6";
            return wrong_use(format!("{}: its peak for every N is the answer for one model; of several each needs {shapes}", model.label));
        };
        let runs = init.into_iter().chain([signature.clone()]).collect();
        model.session.expect_minimum();
        asked.push((signature, runs));
    }
    let models = requests.models.all().iter();
    let beside = models.clone().zip(&asked).map(|(model, (_, runs))| Beside { name: &model.label, session: &model.session, runs });
    let all = load::place_all(devices, &beside.collect::<Vec<_>>())?;
    let mut planned: Vec<Planned> = Vec::with_capacity(args.models.len());
    for ((model, (signature, runs)), one) in models.zip(asked).zip(all) {
        one.log.iter().for_each(output::note);
        if let Some(output) = &args.output {
            let file = one.session.plan_file(&signature)?;
            plimsoll::model::replace_output(output, |out| {
                out.write_all(&file).map_err(|error| plimsoll::model::file_error(output, &error))
            })?;
        }
        let text = after.map(|pass| one.session.text_after(&signature, pass)).transpose()?.unwrap_or_default();
        let minimum = one.session.minimum_limit(&runs, &one.footprint)?;
        let plan = one.session.plan_signature(&signature)?.with_minimum(minimum);
        if let Some((size, limit)) = one.session.larger_file(&runs, &one.footprint)? {
            output::note(format!("{}: with a file of {size} (--spill) the smallest limit is about {limit}", model.label));
        }
        let is_asked = args.curve || (args.html.is_some() && plan.stages().is_none());
        let curves = if is_asked { one.session.curves(&signature)? } else { Vec::new() };
        let (footprint, compared) = (one.footprint, one.compared);
        planned.push(Planned { label: model.label.clone(), plan, footprint, minimum, curves, text, compared });
    }
    Ok(planned)
}

/// Writes the pictures that are asked for. A terminal shows one as text, behind the table.
fn pictures(args: &PlanArgs, json: bool, planned: &[Planned]) -> Result<String> {
    let columns = if json { None } else { terminal::size().map(|(columns, _)| columns) };
    if args.html.is_none() && args.svg.is_none() && columns.is_none() {
        return Ok(String::new());
    }
    let model = |planned: &Planned| planned.plan.with_footprint(&planned.footprint).picture_of_model(&planned.label, &planned.curves);
    let models: Vec<_> = planned.iter().map(model).collect();
    if let (Some(path), [model]) = (&args.svg, &models[..]) {
        output::file(path, &page::svg::memory(model, &model.name).unwrap_or_default())?;
    }
    let text = columns.map(|columns| models.iter().map(|model| format!("\n\n{}", page::text::memory(model, columns).trim_end())).collect());
    if let Some(path) = &args.html {
        let title = planned.iter().map(|planned| planned.label.as_str()).collect::<Vec<_>>().join(", ");
        output::file(path, &Picture { title, models, ..Picture::default() }.html())?;
    }
    Ok(text.unwrap_or_default())
}

fn text(names: &[String], plans: &[Plan], document: &Document, joint: &Joint) -> String {
    if let ([plan], [footprint]) = (plans, joint.footprints()) {
        let placements: String = document.placements.iter().map(|entry| format!("\nplacement {}", entry.text)).collect();
        return plan.with_footprint(footprint).to_string() + &placements + &curve_text(&document.curve);
    }
    let mut text = String::new();
    for ((name, plan), footprint) in names.iter().zip(plans).zip(joint.footprints()) {
        let of_model = document.placements.iter().filter(|entry| entry.model == **name);
        let placements: String = of_model.map(|entry| format!("\nplacement {}", entry.text)).collect();
        text += &format!("{name}\n{}{placements}\n\n", plan.with_footprint(footprint));
    }
    for need in joint.needs() {
        let device = need.name.rsplit("device:").next().unwrap_or_default();
        let shares: Vec<String> = names.iter().zip(&need.shares).map(|(name, share)| format!("{name} {share}")).collect();
        let limit = need.limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        text += &format!("{device}: {}{limit} side by side: {}\n", need.peak, shares.join(", "));
    }
    if let Some(side_by_side) = &document.side_by_side {
        text += &format!("side by side: {side_by_side}");
    }
    if let Some(error) = joint.check_side_by_side().err() {
        text += &format!("\n  {}", error.message());
    }
    if let Some(in_turn) = &document.in_turn {
        text += &format!("\nin turn: {}", in_turn.answer);
    }
    text + &rounds(names, joint)
}

/// What less memory costs, a line for each limit.
fn curve_text(curve: &[CurveEntry]) -> String {
    let mut text = String::new();
    let mut device = "";
    for entry in curve {
        if entry.device != device {
            device = &entry.device;
            text += &format!("\n{} with less memory:", device.rsplit("device:").next().unwrap_or_default());
        }
        let again = if entry.recomputed == 1 { "op runs" } else { "ops run" };
        let (limit, milliseconds) = (Bytes(entry.limit_bytes).to_string(), entry.predicted_step_seconds * 1e3);
        text += &format!("\n  limit {limit:>10}: a step takes {milliseconds:>9.3} ms, {} {again} again", entry.recomputed);
        if entry.offloaded_bytes > 0 {
            text += &format!(", {} in slower memory meanwhile", Bytes(entry.offloaded_bytes));
        }
        if entry.masked > 0 {
            text += &format!(", masks of {} {}", entry.masked, if entry.masked == 1 { "value" } else { "values" });
        }
        if entry.parts > 0 {
            text += &format!(", {} in parts", if entry.parts == 1 { "1 chain".to_string() } else { format!("{} chains", entry.parts) });
        }
        match entry.segments {
            0 => {}
            1 => text += ", 1 loop keeps the state of every k-th iteration",
            loops => text += &format!(", {loops} loops keep the state of every k-th iteration"),
        }
    }
    text
}

/// In which rounds the models run, or why one of them cannot.
fn rounds(names: &[String], joint: &Joint) -> String {
    match joint.rounds() {
        Err(error) => format!("\n  {}", error.message()),
        Ok(rounds) => {
            let round = |round: &Vec<usize>| round.iter().map(|&index| names[index].as_str()).collect::<Vec<_>>().join(" beside ");
            let rounds: Vec<String> = rounds.iter().map(round).collect();
            format!("; eval --parallel runs them as {}", rounds.join(", then "))
        }
    }
}
