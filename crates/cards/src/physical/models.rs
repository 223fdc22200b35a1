//! Models of cards that a simulated card can be named after.

use super::ComputeCapability;

/// A model: figures as the vendor publishes them, memory as nvidia-smi shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Its name in a specification.
    pub key: &'static str,
    /// The driver's name for it.
    pub name: &'static str,
    pub mebibytes: u64,
    pub capability: ComputeCapability,
    pub multiprocessors: u32,
    pub clock_mhz: u32,
    /// Gigabytes (10^9 bytes) a second.
    pub gigabytes_per_second: u32,
}

const fn model(
    key: &'static str,
    name: &'static str,
    mebibytes: u64,
    capability: (u32, u32),
    multiprocessors: u32,
    clock_mhz: u32,
    gigabytes_per_second: u32,
) -> Model {
    let capability = ComputeCapability(capability.0, capability.1);
    Model { key, name, mebibytes, capability, multiprocessors, clock_mhz, gigabytes_per_second }
}

/// The model of a card that is not named after any. It has no memory of its own.
pub(super) const PLAIN: Model = model("", "Simulated GPU", 0, (6, 1), 16, 1500, 320);

const MODELS: [Model; 16] = [
    model("k520", "GRID K520", 4095, (3, 0), 8, 797, 160),
    model("k80", "Tesla K80", 11441, (3, 7), 13, 824, 240),
    model("m60", "Tesla M60", 7618, (5, 2), 16, 1177, 160),
    model("gtx1080ti", "GeForce GTX 1080 Ti", 11178, (6, 1), 28, 1582, 484),
    model("p100", "Tesla P100-PCIE-16GB", 16280, (6, 0), 56, 1328, 732),
    model("v100", "Tesla V100-SXM2-16GB", 16160, (7, 0), 80, 1530, 900),
    model("t4", "Tesla T4", 15109, (7, 5), 40, 1590, 320),
    model("rtx2080ti", "GeForce RTX 2080 Ti", 11019, (7, 5), 68, 1545, 616),
    model("a100", "NVIDIA A100-SXM4-40GB", 40536, (8, 0), 108, 1410, 1555),
    model("rtx3090", "NVIDIA GeForce RTX 3090", 24268, (8, 6), 82, 1695, 936),
    model("a10g", "NVIDIA A10G", 23028, (8, 6), 80, 1710, 600),
    model("l4", "NVIDIA L4", 23034, (8, 9), 58, 2040, 300),
    model("rtx4090", "NVIDIA GeForce RTX 4090", 24564, (8, 9), 128, 2520, 1008),
    model("h100", "NVIDIA H100 80GB HBM3", 81559, (9, 0), 132, 1980, 3352),
    model("h200", "NVIDIA H200", 143771, (9, 0), 132, 1980, 4890),
    model("b200", "NVIDIA B200", 183359, (10, 0), 148, 1965, 8000),
];

/// The model of that key, in any letter case.
pub(super) fn find(key: &str) -> Option<Model> {
    MODELS.into_iter().find(|model| model.key.eq_ignore_ascii_case(key))
}

/// The keys.
pub(super) fn names() -> String {
    MODELS.map(|model| model.key).join(", ")
}
