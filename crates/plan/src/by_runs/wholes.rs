//! The placements in which one device or another comes first, and those that mix them.

use plimsoll_base::Result;
use plimsoll_device::DeviceKind;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use super::PlaceRequest;
use super::units::Units;
use crate::place::{PlaceOptions, Placement, Why, place};
use crate::plan::DeviceId;

/// For each device the placement in which it comes first.
pub(super) struct Wholes {
    /// The devices in the order in which they are tried, cards first.
    pub of: Vec<(DeviceId, Placement)>,
    /// Nodes that are placed as one.
    pub units: Units,
    /// Whether a node runs at all.
    pub runs: IdVec<NodeId, bool>,
}

impl Wholes {
    /// # Errors
    /// As [`place`].
    pub fn new(request: &PlaceRequest<'_>) -> Result<Wholes> {
        Wholes::with(request, Wholes::first(request)?)
    }

    /// The placement with the first device, if there is one.
    ///
    /// # Errors
    /// As [`place`].
    pub fn first(request: &PlaceRequest<'_>) -> Result<Option<(DeviceId, Placement)>> {
        Wholes::candidates(request).first().map(|device| Wholes::whole(request, *device)).transpose()
    }

    /// All, where the first is known.
    ///
    /// # Errors
    /// As [`place`].
    pub fn with(request: &PlaceRequest<'_>, first: Option<(DeviceId, Placement)>) -> Result<Wholes> {
        let others = Wholes::candidates(request).into_iter().skip(1).map(|device| Wholes::whole(request, device));
        let of = first.map(Ok).into_iter().chain(others).collect::<Result<Vec<_>>>()?;
        let placements: Vec<&Placement> = of.iter().map(|(_, placement)| placement).collect();
        let (units, runs) = Units::new(request, &placements);
        Ok(Wholes { of, units, runs })
    }

    /// The devices that come first in one of the placements.
    fn candidates(request: &PlaceRequest<'_>) -> Vec<DeviceId> {
        let specs = || request.devices.iter().enumerate().filter(|(_, spec)| spec.kind.computes());
        let ids = || specs().map(|(index, spec)| (DeviceId::from_index(index), spec.kind == DeviceKind::Cpu));
        let cards = ids().filter(|(_, is_cpu)| !is_cpu);
        cards.chain(ids().filter(|(_, is_cpu)| *is_cpu)).map(|(id, _)| id).collect()
    }

    /// The placement in which a device comes first.
    fn whole(request: &PlaceRequest<'_>, device: DeviceId) -> Result<(DeviceId, Placement)> {
        let options = PlaceOptions { default_device: Some(device), ..request.options.clone() };
        Ok((device, place(request.graph, request.registry, request.devices, &options)?))
    }

    /// The placement in which each unit is where one of these puts it. `why` takes the place of reasons that are no request.
    pub fn mixed(&self, request: &PlaceRequest<'_>, of_unit: impl Fn(usize) -> usize, why: &Why) -> Placement {
        let mut placement = self.of[if self.units.free.is_empty() { 0 } else { of_unit(0) }].1.clone();
        for (unit, nodes) in self.units.free.iter().enumerate() {
            let source = &self.of[of_unit(unit)].1;
            for &node in nodes {
                placement.devices[node] = source.devices[node];
                let follows = matches!(source.why[node], Why::Default | Why::Follows(_));
                placement.why[node] = if follows { why.clone() } else { source.why[node].clone() };
            }
        }
        request.beside.iter().for_each(|(node, beside)| placement.devices[*node] = placement.devices[*beside]);
        placement
    }
}
