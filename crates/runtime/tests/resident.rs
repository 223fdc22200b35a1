//! Memory goes back to the system: seen from outside, in a process that goes on living. A program of its own, since the process is
//! measured, and on its first thread. For each other thread the GNU allocator keeps up to 64 MiB of freed tensors, whatever it is
//! asked. PLIMSOLL_TEST_RESIDENT=1 makes it a session of 1 GiB, a hundred times.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

/// A variable of so many rows of 4 KiB, and a product that has an arena of as much.
fn session(devices: &Devices, rows: u64) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(1024)]))).build().unwrap();
    let v = b.get_variable("v", DataType::Float, [rows, 1024], &Initializer::Ones).unwrap();
    b.global_variables_initializer().unwrap();
    let soft = b.softmax(v.value).build().unwrap();
    let again = b.softmax(soft).build().unwrap();
    let sums = b.reduce_sum(again, Some(&[0])).build().unwrap();
    let y = b.add(x, sums).build().unwrap();
    b.identity(y).name("y").build().unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

/// One line of the system's facts about this process, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

fn main() {
    let Some(_) = resident() else {
        eprintln!("skipped: the system does not say what is resident");
        return;
    };
    let (bytes, times) = if std::env::var_os("PLIMSOLL_TEST_RESIDENT").is_some() { (1 << 30, 100) } else { (64u64 << 20, 12) };
    let rows = bytes / 4096 / 2;
    let options = Options::new().intra_op(2);
    let devices = Devices::open(&options).unwrap();
    let work = |devices: &Devices| {
        let session = session(devices, rows);
        session.run(&[], &[], &["init"]).unwrap();
        let zeros = |rows: u64| HostTensor::from_slice([rows, 1024], &vec![0f32; rows as usize * 1024]).unwrap();
        let (small, great) = (zeros(1), zeros(4096));
        for x in [&small, &great] {
            session.run(&[("x", x)], &["y"], &[]).unwrap();
        }
        assert!(devices.memory_allocated("CPU:0").unwrap() >= Bytes(bytes));
        session
    };
    let mut first = None;
    for time in 0..times {
        // Closed, dropped, or with all its devices.
        match time % 3 {
            0 => {
                let session = work(&devices);
                let callable = session.callable_for(&[], &["v"], &[]).unwrap();
                session.close();
                check(&mut first, time, "closed");
                drop(callable);
            }
            1 => {
                drop(work(&devices));
                check(&mut first, time, "dropped");
            }
            _ => {
                let devices = Devices::open(&options).unwrap();
                let session = work(&devices);
                drop(devices);
                drop(session);
                check(&mut first, time, "dropped with its devices");
            }
        }
        assert_eq!(devices.memory_allocated("CPU:0").unwrap(), Bytes::ZERO);
    }
}

fn check(first: &mut Option<u64>, time: u32, how: &str) {
    let now = resident().unwrap();
    let first = *first.get_or_insert(now);
    println!("{time}: {how}: {} KiB resident, {} KiB more than at first", now >> 10, (now as i64 - first as i64) >> 10);
    assert!(now <= first + (2 << 20), "{time}: {how}: {now} bytes are resident, {first} were after the first");
}
