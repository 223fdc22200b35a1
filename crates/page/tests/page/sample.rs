//! A small plan of two devices, with names of all kinds.

use plimsoll_base::Bytes;
use plimsoll_page::Picture;
use plimsoll_page::picture::{Band, Buffer, Command, Curve, Device, Fitting, Kind, Model, Need, Point, Queue, Stage, Value, Work};

/// Names that would act if they were markup, script or marks of direction; and one that is long.
pub fn hostile() -> Vec<String> {
    vec![
        "<img src=x onerror=document.title='pwned'>".to_string(),
        "</script><script>document.title='pwned'</script>".to_string(),
        "'\"><svg onload=document.title='pwned'>/${document.title='pwned'}".to_string(),
        "\u{202e}desrever/\u{2028}line\u{0}".to_string(),
        format!("{}/end", "שלום".repeat(8192)),
        "__proto__/constructor".to_string(),
    ]
}

/// A picture with these names of nodes.
pub fn picture(names: &[String]) -> Picture {
    let need = |name: &str, limit: Option<u64>, peak: u64| Need {
        name: format!("/job:localhost/replica:0/task:0/device:{name}"),
        short: name.to_string(),
        limit: limit.map(Bytes),
        peak: Bytes(peak),
        certainty: "exact".to_string(),
        parts: [1024, 0, peak - 1024, 0, 0, 0].map(Bytes),
        holders: vec![(names[0].clone(), Bytes(1024))],
        ..Need::default()
    };
    let commands = |count: u32| {
        let command = |number: u32| Command {
            nodes: vec![number % names.len() as u32],
            work: if number == 1 { Work::Copy } else { Work::Kernel },
            detail: names[0].clone(),
            predicted: (f64::from(number) * 1e-6, f64::from(number + 1) * 1e-6),
            waits: if number == 2 { vec![(1, 1)] } else { Vec::new() },
            ..Command::default()
        };
        (0..count).map(command).collect()
    };
    // Scratch of more than one command is that of a loop; what begins during it lies there.
    let buffer = |number: u32| Buffer {
        offset: u64::from((number % 4).min(2)) * 1024,
        bytes: 1000,
        slot: 1024,
        commands: (number, number + 2),
        depth: u32::from(number % 4 == 3),
        kind: [Kind::Value, Kind::Copy, Kind::Scratch, Kind::Again][number as usize % 4],
        values: vec![Value { node: number % names.len() as u32, writer: (0, number), readers: vec![(0, number + 1), (1, 0)] }],
    };
    let device = |need: usize, buffers: Vec<Buffer>| Device {
        need,
        queue: Some(need),
        peak: Bytes(5120),
        bands: vec![Band { name: "variables".to_string(), bytes: Bytes(1024), entries: vec![(names[1].clone(), Bytes(1000))] }],
        arena: Bytes(4096),
        packed: Bytes(4096),
        live: Bytes(3072),
        buffers,
    };
    let model = Model {
        name: names[2].clone(),
        fits: true,
        minimum_limit: Bytes(5120),
        seconds: Some(12e-6),
        text: names.join("\n"),
        needs: vec![need("CPU:0", Some(8192), 5120), need("GPU:0", None, 5120)],
        nodes: names.iter().map(|name| (name.clone(), name.clone())).collect(),
        stages: vec![Stage {
            name: String::new(),
            devices: vec![device(0, (0..10).map(buffer).collect()), device(1, Vec::new())],
            queues: vec![Queue { need: 0, commands: commands(12) }, Queue { need: 1, commands: commands(2) }],
            seconds: 12e-6,
        }],
        fitting: Some(Fitting { recomputed: names.to_vec(), offloaded: Bytes(64), masked: 1, parts: 2, segments: 1, saved: Bytes(1024) }),
        curves: vec![Curve {
            need: 0,
            points: (0..3)
                .map(|at| Point {
                    limit: Bytes(4096 + at * 512),
                    peak: Bytes(4096 + at * 512),
                    seconds: 15e-6 - at as f64 * 1e-6,
                    recomputed: 2 - at as usize,
                    profile: (0..1000).map(|command| (command as f64 * 1e-8, Bytes(4096 - command % 7))).collect(),
                    ..Point::default()
                })
                .collect(),
        }],
        ..Model::default()
    };
    Picture { title: names[1].clone(), models: vec![model], notes: vec![names[0].clone()], sizes: None }
}
