//! What becomes of works on rows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_device::{KernelCall, Variant};
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::expr::{Expr, ExprBuilder};
use plimsoll_request::on_rows::{OnRows, RowOf};

use super::found::{Change, Found, Made, base};
use crate::Request;
use crate::lir::{Arg, Lir, ValueId, View, Work, WorkId, WorkKind};
use crate::prepare::{Prepare, prepare};

impl Found<'_> {
    /// The works as they are found to be; none where nothing is found.
    ///
    /// # Errors
    /// INTERNAL where a work does not hold.
    pub fn applied(mut self) -> Result<Option<Lir>> {
        let changed = loop {
            if self.changes.is_empty() {
                return Ok(None);
            }
            let mut refusing = Vec::new();
            let mut changed = Vec::new();
            for (id, change) in &self.changes {
                match on_rows(self.request, self.lir, *id, change) {
                    Some(work) => changed.push((*id, work)),
                    None => refusing.push(*id),
                }
            }
            if refusing.is_empty() {
                break changed;
            }
            self = self.without(refusing);
        };
        let mut lir = self.lir.clone();
        let copies = self.copies();
        for (id, work) in changed {
            let seconds = self.lir.works[id].seconds() + copies.get(&id).copied().unwrap_or(0.0);
            let prepared = Prepare { seconds, ..prepare(self.request, self.lir, &work)? };
            lir.works[id] = Work { prepared: Some(prepared), ..work };
        }
        for id in lir.ids() {
            let work = &mut lir.works[id];
            let after: BTreeSet<WorkId> =
                work.after.iter().flat_map(|before| self.in_place_of(*before)).filter(|before| *before != id).collect();
            work.after = after.into_iter().collect();
        }
        lir.retain(|id| !self.heirs.contains_key(&id))?;
        Ok(Some(lir))
    }

    /// The predicted seconds of the works that are gone, by the first work in whose arguments their rows are now.
    fn copies(&self) -> HashMap<WorkId, f64> {
        let mut seconds: HashMap<WorkId, f64> = HashMap::new();
        for (gone, heirs) in &self.heirs {
            if let Some(first) = heirs.first() {
                *seconds.entry(*first).or_default() += self.lir.works[*gone].seconds();
            }
        }
        seconds
    }

    /// The works that others wait for in the place of one.
    fn in_place_of(&self, id: WorkId) -> Vec<WorkId> {
        self.heirs.get(&id).cloned().unwrap_or_else(|| vec![id])
    }
}

/// A work on rows; none where its device has no kernel for it.
fn on_rows(request: &Request<'_>, lir: &Lir, id: WorkId, change: &Change) -> Option<Work> {
    let work = &lir.works[id];
    let own = base(work)?;
    let mut made: Vec<&Made> = change.outputs.iter().collect();
    // Results that stay where they were are there once more behind all others.
    made.sort_by_key(|made| (made.is_kept, made.row.of.argument));
    let mut outputs: Vec<ValueId> = work.outputs.clone();
    let mut rows_made: Vec<RowOf> = Vec::new();
    let mut twice: Vec<u32> = Vec::new();
    for made in &made {
        let argument = if made.is_kept {
            twice.push(made.row.of.argument);
            outputs.push(made.list);
            outputs.len() as u32 - 1
        } else {
            outputs[made.row.of.argument as usize] = made.list;
            made.row.of.argument
        };
        rows_made.push(RowOf { argument, ..made.row.of });
    }
    let asked = with_twice(&own.request, &twice)?;
    let mut read: Vec<_> = change.inputs.iter().collect();
    read.sort_by_key(|row| row.of.argument);
    let mut inputs: Vec<View> = work.inputs.clone();
    read.iter().for_each(|row| inputs[row.of.argument as usize] = row.list.clone());
    inputs.extend(made.iter().map(|made| made.row.list.clone()));
    inputs.extend(read.iter().map(|row| row.index.clone()));
    inputs.extend(made.iter().map(|made| made.row.index.clone()));
    let asked = OnRows { request: Box::new(asked), inputs: read.iter().map(|row| row.of).collect(), outputs: rows_made };
    let call = answer(request, work, own, KernelRequest::OnRows(asked))?;
    let kind = WorkKind::Kernel { call, args: Arg::all(inputs.len(), outputs.len()) };
    let nodes = made.iter().flat_map(|made| lir.works[made.by].nodes.iter().copied());
    let nodes = work.nodes.iter().copied().chain(nodes).collect();
    let after = work.after.iter().chain(&change.after).copied().collect();
    Some(Work { kind, nodes, inputs, outputs, after, is_root: work.is_root || !made.is_empty(), ..work.clone() })
}

/// The kernel on rows that computes as a work's own one; none where its device has none.
fn answer(request: &Request<'_>, work: &Work, own: &KernelCall, asked: KernelRequest) -> Option<KernelCall> {
    let (spec, library) = (&request.devices[work.device.index()], request.libraries[work.device.index()]);
    let variants = match own.variant.laid_out {
        Some(laid_out) => library.laid_out(spec, &asked, laid_out),
        None => library.variants(spec, &asked),
    };
    let is_it = |variant: &Variant| variant.name == own.variant.name && variant.numerics == own.variant.numerics;
    let variant = variants.ok()?.into_iter().find(is_it)?;
    Some(KernelCall { request: Arc::new(asked), variant: Arc::new(variant), step: 0 })
}

/// A request that gives some of its results once more, behind all others; none for requests that cannot.
fn with_twice(request: &KernelRequest, twice: &[u32]) -> Option<KernelRequest> {
    let more = |expr: &Expr| -> Option<Expr> {
        let (builder, mut results) = ExprBuilder::resume(expr.clone());
        for result in twice {
            results.push(*results.get(*result as usize)?);
        }
        Some(builder.finish(results))
    };
    Some(match request {
        _ if twice.is_empty() => request.clone(),
        KernelRequest::Expr { expr, shape, operands } => {
            KernelRequest::Expr { expr: more(expr)?, shape: shape.clone(), operands: operands.clone() }
        }
        KernelRequest::Anchor { anchor, epilogue: Some(epilogue), pooling: None } => {
            let epilogue = Some(Epilogue { expr: more(&epilogue.expr)?, operands: epilogue.operands.clone() });
            KernelRequest::Anchor { anchor: *anchor, epilogue, pooling: None }
        }
        _ => return None,
    })
}
