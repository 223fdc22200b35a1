//! A plan from a file serves a run whose feeds and fetches are in another order, and no other run.

use plimsoll::signature::Mismatch;
use plimsoll::{DataType, Devices, HostTensor, OpenedPlan, Options, Result, Session, Shape};

/// `sum = x + y` and `difference = x - y`, and an operation that runs both.
fn session() -> Result<Session> {
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, &Shape::from([2])).build()?;
    let y = b.placeholder("y", DataType::Float, &Shape::from([2])).build()?;
    let sum = b.add(x, y).name("sum").build()?;
    let difference = b.sub(x, y).name("difference").build()?;
    b.group(&[sum.node, difference.node], "both")?;
    devices.session(b.finish())
}

fn values(values: [f32; 2]) -> HostTensor {
    HostTensor::from_slice([2], &values).unwrap()
}

#[test]
fn a_plan_from_a_file_serves_the_runs_that_it_is_for() -> Result<()> {
    let session = session()?;
    let given = [("x", values([5.0, 7.0])), ("y", values([1.0, 2.0]))];
    let signature = session.signature(&given, &["sum", "difference"], &["both"])?;
    let file = session.plan_file(&signature)?;
    let open = || -> Result<OpenedPlan> { session.open_plan(&file) };

    let swapped = [given[1].clone(), given[0].clone()];
    let bound = open()?.bind(session.graph(), &swapped, &["difference:0", "sum:0", "sum"], &["both"])?.expect("it is for this run");
    let feeds = bound.feeds(&[&swapped[0].1, &swapped[1].1]);
    let made = bound.fetches(&bound.callable(&session)?.run(&feeds)?);
    assert_eq!(made, [values([4.0, 5.0]), values([6.0, 9.0]), values([6.0, 9.0])]);

    let refused = |feeds: &[(&str, HostTensor)], fetches: &[&str], targets: &[&str]| -> Result<Option<Mismatch>> {
        Ok(open()?.bind(session.graph(), feeds, fetches, targets)?.err())
    };
    let more = [given[0].clone(), given[1].clone(), ("sum", values([0.0, 0.0]))];
    assert_eq!(refused(&given[..1], &["sum"], &[])?, Some(Mismatch::NotGiven("y".into())));
    assert_eq!(refused(&more, &["difference"], &[])?, Some(Mismatch::NotTaken("sum".into())));
    assert_eq!(refused(&given, &["sum", "x"], &[])?, Some(Mismatch::NotFetched(1)));
    assert_eq!(refused(&given, &["sum"], &["sum"])?, Some(Mismatch::NotRun("sum".into())));
    assert!(refused(&given, &["nothing"], &[]).is_err());
    Ok(())
}

#[test]
fn a_plan_for_elements_of_a_feed_is_for_no_others() -> Result<()> {
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    let dims = b.placeholder("dims", DataType::Int32, &Shape::from([1])).build()?;
    let one = b.scalar(1.0f32)?;
    b.fill(dims, one).name("ones").build()?;
    let session = devices.session(b.finish())?;
    let dims = |count: i32| [("dims", HostTensor::from_slice([1], &[count]).unwrap())];
    let file = session.plan_file(&session.signature(&dims(3), &["ones"], &[])?)?;
    let bind = |count| session.open_plan(&file)?.bind(session.graph(), &dims(count), &["ones"], &[]);
    assert!(bind(3)?.is_ok());
    assert_eq!(bind(4)?.err(), Some(Mismatch::OtherElements("dims".into())));
    Ok(())
}
