//! What plans are made to fit: see [`plimsoll_plan::Lines`].

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;
use plimsoll_plan::{CurvePoint, DeviceId, Lines, Plan, Request, Searches, Signature, VariableKind};

use super::{Inner, Session};

impl Session {
    /// Another session for the same graph, placed the same. It makes its plans fit these lines, one for each device: the bytes that a
    /// device may hold while a plan runs, none where that is as many as the plan needs as it is. It shares nothing but the devices, and
    /// what the search for plans has found so far.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_lines(&self, most: Vec<Option<Bytes>>) -> Result<Session> {
        let Inner { devices, registry, checkpoints, stored, graph, calls, freeze, placement, placed_before, .. } = &*self.inner;
        let before = placed_before.as_ref().map(|before| before.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let placement = (placement.clone(), before.map(Mutex::new));
        let graph = (graph.clone(), calls.clone(), freeze.clone());
        let session = Session::placed(devices, graph, placement, registry.clone(), checkpoints.clone(), stored.clone())?;
        let Lines { variables, searches, .. } = self.inner.lines();
        *session.inner.lines.lock().unwrap_or_else(PoisonError::into_inner) = Lines { most, variables, searches };
        Ok(session)
    }
}

impl Session {
    /// The least limit will be asked for: plans for a limit may search beforehand what that takes. It changes how long they take, and no plan.
    pub fn expect_least(&self) {
        self.inner.searches().expect_least();
    }

    /// For each device whose memory plans of the signature can do with less of: the price of that. See [`plimsoll_plan::curve`].
    ///
    /// # Errors
    /// As [`plimsoll_plan::curve`].
    pub fn curves(&self, signature: &Signature) -> Result<Vec<(DeviceId, Vec<CurvePoint>)>> {
        let curves = |request: &Request<'_>| {
            let devices = (0..request.devices.len()).map(DeviceId::from_index);
            let curves = devices.map(|device| Ok((device, plimsoll_plan::curve(request, device)?)));
            curves.filter(|curve| curve.as_ref().map_or(true, |(_, points)| points.len() > 1)).collect()
        };
        self.inner.requested(signature, curves)
    }
}

impl Inner {
    /// The limits of devices, where options ask for plans that fit them.
    pub(super) fn limits(devices: &crate::Devices) -> Lines {
        let limits = devices.specs().iter().map(|spec| spec.memory_limit);
        Lines {
            most: if devices.options().fit { limits.collect() } else { Vec::new() },
            searches: Some(Arc::default()),
            ..Lines::default()
        }
    }

    /// No more plans are expected: what the search has found goes.
    pub(super) fn forget_searches(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).searches = Some(Arc::default());
    }

    /// Where what searches find is kept.
    pub(super) fn searches(&self) -> Arc<Searches> {
        Arc::clone(self.lines.lock().unwrap_or_else(PoisonError::into_inner).searches.get_or_insert_default())
    }

    /// Searches of plans find again what those of another session have found.
    pub(super) fn share_searches(&self, other: &Inner) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).searches = Some(other.searches());
    }

    /// What a plan is made to fit.
    pub(super) fn lines(&self) -> Lines {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Variables of a plan stay: later plans run beside them.
    pub(super) fn note_variables(&self, plan: &Plan) {
        let lasting = plan.variables.iter().filter(|variable| variable.kind != VariableKind::State);
        let lasting = lasting.map(|variable| (variable.key.clone(), (variable.device, variable.bytes)));
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).variables.extend(lasting);
    }
}
