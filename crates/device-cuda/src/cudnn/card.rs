//! Convolutions and attention on a card: cuDNN's handle, and plans that were made for it.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Code, Error, Result};

use super::descriptor::{self, Descriptor};
use super::engine::{Engine, EngineLimits, EngineName};
use super::graph::GraphPlan;
use super::planner::{PlanFor, Planner, Target};
use super::raw::{Handle, NO_MEMORY, attribute, element, kind};
use crate::driver::{Context, Stream, Trouble};

/// cuDNN on a card: its handle there. Pushing what it computes is done by one thread at a time.
#[derive(Debug)]
pub(crate) struct Cudnn {
    pub planner: Arc<Planner>,
    /// What cuDNN knows of the card, as JSON.
    pub properties: String,
    context: Arc<Context>,
    handle: Mutex<Opened>,
}

#[derive(Debug)]
struct Opened(Handle);

// SAFETY: by cuDNN's documentation a handle may be used from any thread, one at a time.
unsafe impl Send for Opened {}

/// A convolution or another graph by the engine that its plan names, ready to be pushed on a stream of the card.
#[derive(Debug)]
pub(crate) struct ReadyConvolution {
    /// It ends before the handle.
    plan: CardPlan,
    cudnn: Arc<Cudnn>,
    /// The numbers of its tensors.
    names: Vec<i64>,
    /// Those of floats that are said beside the addresses, and these.
    said: Vec<(i64, f32)>,
    needs_workspace: bool,
}

/// A plan of cuDNN's for a card. What it has there goes with it, in the card's context.
#[derive(Debug)]
struct CardPlan {
    /// None when it has ended.
    plan: Option<Descriptor>,
    context: Arc<Context>,
}

impl Drop for CardPlan {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        self.plan = None;
    }
}

/// `CUDNN_STATUS_BAD_PARAM`
const BAD: i32 = 2000;

/// What addresses are multiples of, as the graphs of convolutions promise.
const ALIGNED: u64 = super::convolution::ALIGNMENT as u64;

impl Cudnn {
    /// Opens it on a card, which costs memory there.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with cuDNN's reason; RESOURCE_EXHAUSTED where the card has no room.
    pub fn open(planner: &Arc<Planner>, context: &Arc<Context>) -> Result<Arc<Cudnn>> {
        let _entered = context.enter().map_err(|trouble| context.error("cuDNN cannot be opened on the card", trouble))?;
        if let Some(missing) = planner.cudnn.missing(&["text", "last_text"]) {
            return Err(Error::failed_precondition(format!("cuDNN has no {missing}")).with_remedy("install cuDNN 9.8 or later"));
        }
        let properties = planner.properties(context.device)?;
        let mut handle = std::ptr::null_mut();
        let open = planner.cudnn.open.ok_or_else(|| Error::failed_precondition("cuDNN opens nothing"))?;
        // SAFETY: by cuDNN's documentation it writes a handle for the card of the calling thread.
        match unsafe { open(&mut handle) } {
            0 => {
                let (planner, context, handle) = (planner.clone(), context.clone(), Mutex::new(Opened(handle)));
                Ok(Arc::new(Cudnn { planner, properties, context, handle }))
            }
            status => Err(descriptor::error(&planner.cudnn, "it cannot be opened on the card", status)),
        }
    }

    /// Engines for a graph on this card: the first that the limits allow, at most so many, by cuDNN's prediction for the card's
    /// properties, with the workspace that each wants here. None where there is none within the limits, and where cuDNN refuses the graph.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the card has no room to ask; UNAVAILABLE where it is lost.
    pub fn choose(&self, graph: &GraphPlan, limits: EngineLimits, most: usize) -> Result<Vec<Engine>> {
        let wants = |name: &EngineName| Ok(self.named(graph, name)?.map(|engine| engine.name.workspace));
        match self.planner.choose_with((PlanFor::Properties(&self.properties), graph), (limits, most), true, wants) {
            Err(error) if !is_final(&error) => Ok(Vec::new()),
            chosen => chosen,
        }
    }

    /// The engine of that name, with the workspace that it wants here; none where the card does not take it.
    ///
    /// # Errors
    /// As [`Cudnn::choose`].
    pub fn named(&self, graph: &GraphPlan, name: &EngineName) -> Result<Option<Engine>> {
        match self.build(graph, name) {
            Ok((engine, _)) => Ok(Some(engine)),
            Err(error) if is_final(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Builds a graph by exactly that engine.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where this cuDNN is of another version, refuses the engine, or wants more workspace than its name says, and where the limits
    /// do not allow it or its bits are others each time. As [`Cudnn::choose`].
    pub fn ready(self: &Arc<Cudnn>, graph: &GraphPlan, name: &EngineName, limits: EngineLimits) -> Result<ReadyConvolution> {
        let remedy = "plan again on this machine, or leave cuDNN out (--cudnn never)";
        let refused = |why: &str| Error::failed_precondition(format!("{name}: {why}")).with_remedy(remedy);
        let built = self.build(graph, name);
        let (engine, plan) = built.map_err(|error| if is_final(&error) { error } else { refused(error.message()) })?;
        if !engine.is_deterministic {
            return Err(refused("its bits are others each time"));
        }
        if !limits.allow(&engine, graph.data_type()) {
            return Err(refused("its bits are not those that are asked for (--tensor-float-32)"));
        }
        let wanted = engine.name.workspace;
        if wanted > name.workspace {
            return Err(refused(&format!("the card wants {} bytes of workspace", wanted.0)));
        }
        Ok(ReadyConvolution { plan, cudnn: self.clone(), names: graph.names(), said: graph.said(), needs_workspace: wanted.0 > 0 })
    }

    fn build(&self, graph: &GraphPlan, name: &EngineName) -> Result<(Engine, CardPlan)> {
        let _entered = self.context.enter().map_err(|trouble| self.context.error("cuDNN", trouble))?;
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let built = self.planner.build(&Target::Handle(handle.0 as u64), graph, name);
        // A lost card is no property of an engine.
        let (engine, plan) = built.or_else(|error| self.context.free_bytes().and(Err(error)))?;
        Ok((engine, CardPlan { plan: Some(plan), context: self.context.clone() }))
    }
}

/// Whether an error says nothing of an engine.
fn is_final(error: &Error) -> bool {
    matches!(error.code(), Code::ResourceExhausted | Code::Unavailable)
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        if let Some(close) = self.planner.cudnn.close {
            // SAFETY: the handle is cuDNN's, which ends here; plans for it have ended.
            unsafe { close(handle) };
        }
    }
}

impl ReadyConvolution {
    /// Pushes it on a stream of the card, which may be one that is captured. The addresses are those of the tensors as the graph has them in
    /// memory, and workspace, which lie apart and stay until it has run. Of a convolution these are input, filter, result, bias, residual,
    /// features, sums and sums of squares, where they are. The calling thread is in the card's context.
    ///
    /// # Errors
    /// cuDNN's status, also for addresses that are not aligned.
    pub fn push(&self, stream: &Stream, addresses: &[u64]) -> std::result::Result<(), Trouble> {
        const MISALIGNED: i32 = 2003;
        let Some((&workspace, tensors)) = addresses.split_last().filter(|(_, tensors)| tensors.len() == self.names.len()) else {
            return Err(Trouble::Cudnn(BAD));
        };
        let all = tensors.iter().copied().chain(self.needs_workspace.then_some(workspace));
        if all.into_iter().any(|address| address == 0 || !address.is_multiple_of(ALIGNED)) {
            return Err(Trouble::Cudnn(MISALIGNED));
        }
        let cudnn = &self.cudnn.planner.cudnn;
        let addresses = || {
            let addresses = Descriptor::new(cudnn, kind::ADDRESSES, "addresses")?;
            // Of a float that is said, the address is the host's: cuDNN reads it when it is asked to compute.
            let names: Vec<i64> = self.names.iter().copied().chain(self.said.iter().map(|(name, _)| *name)).collect();
            let of: Vec<u64> = tensors.iter().copied().chain(self.said.iter().map(|(_, value)| &raw const *value as u64)).collect();
            addresses.integers(attribute::ADDRESSES_NAMES, &names)?;
            addresses.addresses(attribute::ADDRESSES_OF, element::ADDRESS, &of)?;
            addresses.addresses(attribute::ADDRESSES_WORKSPACE, element::ADDRESS, &[if self.needs_workspace { workspace } else { 0 }])?;
            addresses.finish("addresses")
        };
        let calls = (addresses(), &self.plan.plan, cudnn.set_stream, cudnn.execute);
        let (Ok(addresses), Some(plan), Some(set_stream), Some(execute)) = calls else {
            return Err(Trouble::Cudnn(BAD));
        };
        let handle = self.cudnn.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: handle, stream and descriptors live, and are of one card.
        let status = unsafe {
            match set_stream(handle.0, stream.handle()) {
                0 => execute(handle.0, plan.handle(), addresses.handle()),
                status => status,
            }
        };
        drop(handle);
        match status {
            0 => Ok(()),
            status if NO_MEMORY.contains(&status) => Err(Trouble::OUT_OF_MEMORY),
            status => {
                // cuDNN does not say that the card is lost; the driver does, and the context remembers it.
                let _ = self.cudnn.context.free_bytes();
                Err(Trouble::Cudnn(status))
            }
        }
    }
}
