//! The cards that leases are taken from: those of NVIDIA's driver, or simulated ones.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::{Environment, Options, PhysicalDevice, seen};
use plimsoll_device_cuda::Nvml;
use plimsoll_machine::{Guarantee, Identity, Machine, Obstacle, Scope, StateDir, Wait};

use super::{Amount, Lease, Part, Request, Which, outside};

/// The cards of a machine and their ledger. Inside of a lease they are the lease's part.
#[derive(Clone, Debug)]
pub struct Cards(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Vec<PhysicalDevice>,
    /// CUDA's number of each; none for one that CUDA_VISIBLE_DEVICES hides.
    visible: Vec<Option<u32>>,
    /// The same without that variable.
    ordinals: Vec<u32>,
    /// All the memory of each, also inside of a lease.
    totals: Vec<Bytes>,
    machine: Option<Machine>,
    /// Which ledger that is, with its cards.
    scope: Option<Scope>,
    nvml: Option<Nvml>,
    /// Why there are no cards.
    none: String,
    simulated: Option<String>,
    /// The lease of which they are the part, as a program under it is told.
    outer: Option<String>,
    /// The folder that their ledger was looked for in, where it was named.
    state: Option<StateDir>,
}

impl Cards {
    /// The cards of this machine: simulated ones where the options or PLIMSOLL_SIM_GPUS ask for them, else those that NVIDIA's
    /// driver knows. PLIMSOLL_NVML names another library than the driver's; empty, none is loaded. Where there are no cards at all,
    /// leases can be taken that have none.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for simulated cards that are none; otherwise the obstacle to the machine's ledger.
    pub fn find(options: &Options, environment: &Environment) -> Result<Cards> {
        Cards::of(options, environment, None)
    }

    /// As [`Cards::find`], with the ledger in that folder.
    ///
    /// # Errors
    /// As [`Cards::find`].
    pub fn find_in(state: &StateDir, options: &Options, environment: &Environment) -> Result<Cards> {
        Cards::of(options, environment, Some(state))
    }

    fn of(options: &Options, environment: &Environment, state: Option<&StateDir>) -> Result<Cards> {
        let mut all = options.simulated_cards(environment)?;
        let simulated =
            options.sim_gpus.as_deref().or(environment.get("PLIMSOLL_SIM_GPUS")).filter(|_| !all.is_empty()).map(str::to_string);
        let (mut nvml, mut none) = (None, String::new());
        if all.is_empty() {
            match Nvml::find(environment) {
                Ok(library) => {
                    let look = library.look();
                    all = look.shared();
                    none = match &look.troubles()[..] {
                        [] => "the NVIDIA driver sees no cards".into(),
                        troubles => troubles.join("; "),
                    };
                    nvml = Some(library);
                }
                Err(error) => none = error.message().into(),
            }
        }
        // Cards are counted on the whole machine, also inside of a lease.
        let order = match environment.get("CUDA_DEVICE_ORDER") {
            Some(order) => Environment::new().with("CUDA_DEVICE_ORDER", order),
            None => Environment::new(),
        };
        let numbers = |environment: &Environment| -> Vec<Option<u32>> {
            let cards = seen(&all, environment, &mut Vec::new());
            let number = |device: &PhysicalDevice| cards.iter().find(|card| card.device.uuid == device.uuid).map(|card| card.ordinal);
            all.iter().map(number).collect()
        };
        let (mut visible, ordinals) = (numbers(environment), numbers(&order));
        let ordinals = ordinals.into_iter().map(Option::unwrap_or_default).collect();
        let totals = all.iter().map(|device| device.total).collect();
        let (mut machine, mut scope) = (None, None);
        if !all.is_empty() {
            let state = state.map_or_else(StateDir::find, |state| Ok(state.clone()))?;
            machine = Some(PhysicalDevice::leased_ledger(&mut all, &state, environment)?);
            scope = Some(state.scope());
        }
        let outer = environment.get("PLIMSOLL_LEASE").filter(|_| all.iter().any(|device| device.leased)).map(str::to_string);
        for (visible, device) in visible.iter_mut().zip(&all) {
            // A card of which a lease has nothing is not there.
            *visible = visible.filter(|_| device.total > Bytes::ZERO);
        }
        let state = state.cloned();
        Ok(Cards(Arc::new(Inner { all, visible, ordinals, totals, machine, scope, nvml, none, simulated, outer, state })))
    }

    /// All of them, also those that CUDA_VISIBLE_DEVICES hides.
    pub fn all(&self) -> &[PhysicalDevice] {
        &self.0.all
    }

    /// The numbers in [`Cards::all`] of those that are seen, in CUDA's order.
    pub fn visible(&self) -> Vec<usize> {
        let mut visible: Vec<usize> = (0..self.0.all.len()).filter(|&card| self.0.visible[card].is_some()).collect();
        visible.sort_by_key(|&card| self.0.visible[card]);
        visible
    }

    /// Their ledger; none where there are no cards.
    pub fn machine(&self) -> Option<&Machine> {
        self.0.machine.as_ref()
    }

    /// Which ledger that is; none where there are no cards.
    pub fn scope(&self) -> Option<&Scope> {
        self.0.scope.as_ref()
    }

    /// How simulated cards were asked for; none for real ones.
    pub fn simulated(&self) -> Option<&str> {
        self.0.simulated.as_deref()
    }

    /// All the memory of a card, also inside of a lease.
    pub(super) fn total(&self, card: usize) -> Bytes {
        self.0.totals.get(card).copied().unwrap_or_default()
    }

    /// The folder that their ledger was looked for in, where it was named.
    pub(crate) fn state(&self) -> Option<&StateDir> {
        self.0.state.as_ref()
    }

    /// The lease under which this program was started, if these cards are its part.
    pub(super) fn outer(&self) -> Option<&str> {
        self.0.outer.as_deref()
    }

    pub(crate) fn nvml(&self) -> Option<&Nvml> {
        self.0.nvml.as_ref()
    }

    /// Takes a lease: the request on all its cards, or nothing. While it waits, `told` is called now and then with the obstacle,
    /// and ends the wait by returning `false`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for cards that are not there. RESOURCE_EXHAUSTED where a card has no room, with the holders of the rest
    /// (DEADLINE_EXCEEDED after a wait, CANCELLED where `told` ended it). Otherwise the obstacle to the ledger.
    pub fn lease(&self, request: &Request, told: &mut dyn FnMut(Obstacle<'_>) -> bool) -> Result<Lease> {
        let (candidates, count) = self.candidates(&request.cards)?;
        let Some(machine) = self.0.machine.as_ref().filter(|_| count > 0) else {
            return Ok(Lease {
                member: None,
                parts: Vec::new(),
                cards: self.clone(),
                guarantee: Guarantee::Held,
                peaks: Vec::new(),
                users: Default::default(),
                shows_share: false,
                tells_frameworks: true,
            });
        };
        let seen = if self.0.nvml.is_some() { Guarantee::Watched } else { Guarantee::Framework };
        let guarantee = request.guarantee.unwrap_or(seen);
        let mut identity = Identity { guarantee, ..Identity::this_process(request.name.clone()) };
        if !request.program.is_empty() {
            identity.program.clone_from(&request.program);
        }
        self.see_outside(machine);
        let amounts: Vec<(usize, Bytes)> =
            candidates.iter().map(|&card| Ok((card, self.amount(machine, card, request.memory)?))).collect::<Result<_>>()?;
        let began = Instant::now();
        let member = match &request.wait {
            Some(wait) => machine.join_waiting(&identity, wait, told)?,
            None => machine.join(&identity)?,
        };
        // One bound for all of it.
        let left = |wait: &Wait| Wait { timeout: wait.timeout.map(|timeout| timeout.saturating_sub(began.elapsed())), ..*wait };
        let wait = request.wait.as_ref().map(left);
        let mut looked = Instant::now();
        let mut told = |obstacle: Obstacle<'_>| {
            if looked.elapsed() >= outside::OFTEN {
                self.see_outside(machine);
                looked = Instant::now();
            }
            told(obstacle)
        };
        let granted = match &wait {
            wait if count < candidates.len() => member.reserve_some(&amounts, count as u8, wait.as_ref(), &mut told)?,
            Some(wait) => member.reserve_waiting(&amounts, wait, &mut told).map(|()| candidates)?,
            None => member.reserve(&amounts).map(|()| candidates)?,
        };
        let part =
            |card: usize| Part { card, device: self.0.all[card].clone(), ordinal: self.0.ordinals[card], bytes: member.reserved(card) };
        let parts: Vec<Part> = granted.into_iter().map(part).collect();
        let peaks = vec![None; parts.len()];
        Ok(Lease {
            member: Some(member),
            parts,
            cards: self.clone(),
            guarantee,
            peaks,
            users: Default::default(),
            shows_share: false,
            tells_frameworks: true,
        })
    }

    /// Whether a request could be granted if there were no holders.
    ///
    /// # Errors
    /// As [`Cards::lease`], why it could not.
    pub fn could_grant(&self, request: &Request) -> Result<()> {
        let (candidates, count) = self.candidates(&request.cards)?;
        let Some(machine) = self.machine() else { return Ok(()) };
        let fits = |card: &usize| self.amount(machine, *card, request.memory).is_ok_and(|bytes| bytes <= machine.cards()[*card].capacity);
        match candidates.iter().filter(|card| fits(card)).count() {
            enough if enough >= count => Ok(()),
            few => Err(Error::resource_exhausted(format!("{few} cards have that much memory, and {count} are asked for"))
                .with_remedy("ask for less: the cards have not that much for one program")),
        }
    }

    fn see_outside(&self, machine: &Machine) {
        // Inside of a lease, the use of others is no part of it.
        let is_leased = self.0.all.iter().any(|device| device.leased);
        if let Some(nvml) = self.0.nvml.as_ref().filter(|_| !is_leased) {
            plimsoll_device_cuda::subtract(&nvml.look(), &self.0.all, machine);
        }
    }

    /// The cards that may be taken, and how many of them are to be.
    fn candidates(&self, which: &Which) -> Result<(Vec<usize>, usize)> {
        let visible = self.visible();
        match which {
            Which::Count(0) => Ok((Vec::new(), 0)),
            Which::Count(count) if *count > visible.len() => Err(self.too_few(&match count {
                1 => "a card is asked for".into(),
                count => format!("{count} cards are asked for"),
            })),
            Which::Count(count) => Ok((visible, *count)),
            Which::List(list) => {
                let find =
                    |&number: &usize| visible.get(number).copied().ok_or_else(|| self.too_few(&format!("card {number} is asked for")));
                let chosen = list.iter().map(find).collect::<Result<Vec<usize>>>()?;
                let count = chosen.len();
                Ok((chosen, count))
            }
        }
    }

    fn amount(&self, machine: &Machine, card: usize, amount: Amount) -> Result<Bytes> {
        let info = &machine.cards()[card];
        let bytes = match amount {
            Amount::All => info.capacity - machine.outside(card),
            Amount::Bytes(bytes) => bytes,
            Amount::Fraction(fraction) => Bytes((info.capacity.0 as f64 * fraction) as u64),
        };
        match bytes {
            Bytes::ZERO => Err(Error::resource_exhausted("programs without a lease use all of its memory")
                .on_device(info.name.clone())
                .with_remedy("end them, or choose another card")),
            bytes => Ok(bytes),
        }
    }

    fn too_few(&self, asked: &str) -> Error {
        let (all, visible) = (self.0.all.len(), self.visible().len());
        let hidden = match all - visible {
            0 => String::new(),
            hidden => format!("; CUDA_VISIBLE_DEVICES hides {hidden}"),
        };
        let message = match (all, visible) {
            (0, _) => format!("{asked}, and there are none: {}", self.0.none),
            (_, visible) => format!("{asked}, and {visible} are seen{hidden}"),
        };
        let remedy = match visible {
            0 => "ask for none (--gpus 0), or for simulated ones (--sim-gpus 2x4GiB)".into(),
            1 => "the only card has the number 0".into(),
            visible => format!("cards have the numbers 0 to {}", visible - 1),
        };
        Error::invalid_argument(message).with_remedy(remedy)
    }
}
