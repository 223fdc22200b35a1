//! The constants of a session in the memory of its devices.
//!
//! Plans of a session share equal values, counted by reference. A plan has its constants from its loading on; when no run uses them
//! and a run finds no room, they are given back, those of the least recently used plan first. The next run of the plan takes them
//! again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Instant;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{Device, Offsets};
use plimsoll_graph::HostTensor;
use plimsoll_graph::id::Id;
use plimsoll_memory::{Address, Block, Loan};
use plimsoll_plan::{ConstantValue, Plan, reads_from_graph, shares_value};

use crate::cancellation::{self, Cancellation};

/// The constants of a session.
pub(crate) struct Constants {
    devices: Vec<Arc<OnDevice>>,
    /// Those of plans that are loaded, or were.
    plans: Mutex<Vec<Weak<PlanConstants>>>,
    /// Whether the session has ended: nothing is taken any more.
    closed: Arc<AtomicBool>,
}

/// The values on one device.
struct OnDevice {
    device: Arc<dyn Device>,
    holder: String,
    shared: Mutex<Shared>,
}

/// Values that plans share.
struct Shared {
    values: HashMap<ConstantValue, SharedValue>,
    /// The values that are read where the graph has them: one reservation for all.
    lent: Loan,
    slots: Bytes,
}

struct SharedValue {
    /// How many plans have it.
    users: u32,
    address: Address,
    memory: Memory,
}

/// What keeps a shared value in its place.
enum Memory {
    /// The device's own memory.
    Block(Block),
    /// The graph's memory, or elements that the graph has in another form, in full.
    Lent(HostTensor),
}

impl Constants {
    /// Of a session without plans.
    pub fn new(devices: &[Arc<dyn Device>], holder: &str) -> Constants {
        let holder = format!("{holder}: constants");
        let on_device = |device: &Arc<dyn Device>| {
            let shared = Shared { values: HashMap::new(), lent: device.lend(&holder), slots: Bytes::ZERO };
            Arc::new(OnDevice { device: device.clone(), holder: holder.clone(), shared: Mutex::new(shared) })
        };
        Constants { devices: devices.iter().map(on_device).collect(), plans: Mutex::default(), closed: Arc::default() }
    }

    /// Those of a plan, on no device yet.
    pub fn of_plan(&self, plan: &Arc<Plan>) -> Arc<PlanConstants> {
        let state = Mutex::new(State { runs: 0, used: Instant::now(), taken: None, times: 0 });
        let (devices, closed) = (self.devices.clone(), self.closed.clone());
        let constants = Arc::new(PlanConstants { devices, plan: plan.clone(), state, closed });
        let mut plans = self.plans();
        plans.retain(|plan| plan.strong_count() > 0);
        plans.push(Arc::downgrade(&constants));
        constants
    }

    /// Of the plans with constants on devices that no run uses, the one that was not used for longest, and when it was.
    pub fn oldest(&self) -> Option<(Instant, Arc<PlanConstants>)> {
        let plans: Vec<Arc<PlanConstants>> = self.plans().iter().filter_map(Weak::upgrade).collect();
        plans.into_iter().filter_map(|plan| Some((plan.idle_since()?, plan))).min_by_key(|(since, _)| *since)
    }

    /// Gives back those of all plans, and takes none from now on. For a session that ends: no plan runs any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let plans: Vec<Arc<PlanConstants>> = self.plans().iter().filter_map(Weak::upgrade).collect();
        plans.iter().for_each(|plan| plan.state().taken = None);
    }

    fn plans(&self) -> MutexGuard<'_, Vec<Weak<PlanConstants>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The constants of a plan.
pub(crate) struct PlanConstants {
    devices: Vec<Arc<OnDevice>>,
    plan: Arc<Plan>,
    state: Mutex<State>,
    closed: Arc<AtomicBool>,
}

struct State {
    /// How many runs and lanes use them.
    runs: u32,
    /// When one last began to.
    used: Instant,
    taken: Option<Taken>,
    /// How often they were taken.
    times: u64,
}

/// Constants that are on their devices.
struct Taken {
    /// In the order of the plan's constants.
    addresses: Vec<Address>,
    shared: Vec<(Arc<OnDevice>, ConstantValue)>,
    /// Small values of the plan's own.
    blocks: Vec<Block>,
    /// Compressed values that are only copied somewhere, in full.
    full: Vec<HostTensor>,
    /// Whether giving them back makes room.
    has_memory: bool,
}

impl PlanConstants {
    /// Has the constants on their devices, and keeps them there until the guard is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; the error of the cancellation; UNAVAILABLE where a device is lost; CANCELLED after
    /// the session was closed.
    pub fn take(&self, cancellation: Option<&Cancellation>) -> Result<Used<'_>> {
        self.begin(cancellation)?;
        Ok(Used(self))
    }

    /// As [`PlanConstants::take`], with a guard that owns them.
    ///
    /// # Errors
    /// As [`PlanConstants::take`].
    pub fn pin(self: &Arc<PlanConstants>, cancellation: Option<&Cancellation>) -> Result<Pinned> {
        self.begin(cancellation)?;
        Ok(Pinned(self.clone()))
    }

    fn begin(&self, cancellation: Option<&Cancellation>) -> Result<()> {
        let mut state = cancellation::lock(&self.state, cancellation)?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(super::closed());
        }
        if state.taken.is_none() {
            state.taken = Some(self.taken()?);
            state.times += 1;
        }
        state.runs += 1;
        state.used = Instant::now();
        Ok(())
    }

    fn end(&self) {
        self.state().runs -= 1;
    }

    /// Gives them back, unless a run uses them.
    pub fn give_back(&self) -> bool {
        let taken = self.try_state().and_then(|mut state| if state.runs == 0 { state.taken.take() } else { None });
        taken.is_some()
    }

    /// When they were last used; none where they are in use, or have no memory.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.try_state()?;
        (state.runs == 0 && state.taken.as_ref().is_some_and(|taken| taken.has_memory)).then_some(state.used)
    }

    /// The state, unless a run is about to use them, which may wait for memory.
    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn taken(&self) -> Result<Taken> {
        let count = self.plan.constants.len();
        if self.plan.values.len() != count {
            return Err(Error::internal("a plan without the elements of its constants"));
        }
        let mut taken =
            Taken { addresses: vec![Address::NULL; count], shared: Vec::new(), blocks: Vec::new(), full: Vec::new(), has_memory: false };
        // For each device, the plan's own values with their offsets and the numbers of the constants that they are.
        let mut own: Vec<OwnValues> = self.devices.iter().map(|on| OwnValues::new(&*on.device)).collect();
        for (number, (constant, value)) in self.plan.constant_values().enumerate() {
            let Some(index) = constant.device.map(Id::index) else {
                let full = value.dense()?;
                taken.addresses[number] = address(&full);
                if value.bytes().is_none() {
                    taken.full.push(full);
                }
                continue;
            };
            let on = self.devices.get(index).ok_or_else(|| Error::internal("a constant on a device that is not there"))?;
            let value = ConstantValue::new(constant, value);
            if shares_value(on.device.spec(), constant.bytes) {
                taken.addresses[number] = on.take(&value, constant.bytes)?;
                taken.shared.push((on.clone(), value));
                taken.has_memory |= constant.bytes > Bytes::ZERO;
            } else {
                own[index].add(number, value, constant.bytes);
            }
        }
        for (on, own) in self.devices.iter().zip(own).filter(|(_, own)| !own.numbers.is_empty()) {
            let block = own.write(on, &mut taken.addresses)?;
            taken.has_memory |= block.bytes() > Bytes::ZERO;
            taken.blocks.push(block);
        }
        Ok(taken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shared.drain(..).for_each(|(on, value)| on.put(&value));
    }
}

/// Constants in use.
pub(crate) struct Used<'a>(&'a PlanConstants);

impl Used<'_> {
    /// Where they are, if that is not known from the time `since`; `since` becomes the present one.
    pub fn bind(&self, since: &mut u64, addresses: &mut [Address]) {
        let state = self.0.state();
        if *since != state.times
            && let Some(taken) = &state.taken
        {
            addresses.copy_from_slice(&taken.addresses);
            *since = state.times;
        }
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Constants that stay, whether a run uses them or not.
pub(crate) struct Pinned(Arc<PlanConstants>);

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Small values of a plan in a device's own memory, each once.
struct OwnValues {
    offsets: Offsets,
    values: HashMap<ConstantValue, u64>,
    numbers: Vec<(usize, u64)>,
}

impl OwnValues {
    fn new(device: &dyn Device) -> OwnValues {
        OwnValues { offsets: Offsets::new(device.spec()), values: HashMap::new(), numbers: Vec::new() }
    }

    fn add(&mut self, number: usize, value: ConstantValue, bytes: Bytes) {
        let OwnValues { offsets, values, numbers } = self;
        let offset = *values.entry(value).or_insert_with(|| offsets.push(bytes));
        numbers.push((number, offset));
    }

    fn write(self, on: &OnDevice, addresses: &mut [Address]) -> Result<Block> {
        let block = on.device.allocate(self.offsets.end(), &on.holder)?;
        for (value, offset) in &self.values {
            block.write(*offset, value.full()?.held().unwrap_or_default())?;
        }
        self.numbers.iter().for_each(|(number, offset)| addresses[*number] = block.address().plus(*offset));
        Ok(block)
    }
}

impl OnDevice {
    /// Where a value is from now on; it stays until [`OnDevice::put`].
    fn take(&self, value: &ConstantValue, bytes: Bytes) -> Result<Address> {
        let mut shared = self.shared();
        if let Some(address) = shared.again(value) {
            return Ok(address);
        }
        let spec = self.device.spec();
        let memory = if reads_from_graph(spec) {
            let slots = shared.slots + spec.slot(bytes);
            shared.lent.set(spec.reserved(slots)).map_err(Error::from)?;
            // Reserved, so that they may be held in full now.
            let full = value.full();
            if full.is_err() {
                // Less is always granted.
                let before = spec.reserved(shared.slots);
                let _ = shared.lent.set(before);
            }
            let full = full?;
            shared.slots = slots;
            Memory::Lent(full)
        } else {
            // It may wait for other programs: runs of other plans do not.
            drop(shared);
            let block = self.device.allocate(bytes, &self.holder)?;
            block.write(0, value.full()?.held().unwrap_or_default())?;
            shared = self.shared();
            if let Some(address) = shared.again(value) {
                return Ok(address);
            }
            Memory::Block(block)
        };
        let address = match &memory {
            Memory::Block(block) => block.address(),
            Memory::Lent(full) => address(full),
        };
        shared.values.insert(value.clone(), SharedValue { users: 1, address, memory });
        Ok(address)
    }

    /// One plan has the value no more.
    fn put(&self, value: &ConstantValue) {
        let mut shared = self.shared();
        let Some(found) = shared.values.get_mut(value) else { return };
        found.users -= 1;
        if found.users > 0 {
            return;
        }
        let gone = shared.values.remove(value);
        if let Some(SharedValue { memory: Memory::Lent(full), .. }) = &gone {
            let spec = self.device.spec();
            shared.slots = shared.slots - spec.slot(Bytes(full.byte_len()));
            let reserved = spec.reserved(shared.slots);
            let _ = shared.lent.set(reserved);
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// A value that is there, for one more plan.
    fn again(&mut self, value: &ConstantValue) -> Option<Address> {
        let found = self.values.get_mut(value)?;
        found.users += 1;
        Some(found.address)
    }
}

/// Where the elements of a tensor are.
fn address(tensor: &HostTensor) -> Address {
    tensor.held().map_or(Address::NULL, |bytes| Address::new(bytes.as_ptr().cast_mut()))
}
