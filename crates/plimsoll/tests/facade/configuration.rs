//! `tf.config` for this machine: what is imported is taken in before anything is divided.

use plimsoll::{Devices, Options, config, formats};

#[test]
fn an_import_is_judged_by_tensorflows_rules() {
    let import = |text: &str| {
        let mut options = Options::new().sim_gpus("3x4GiB");
        config::apply(&formats::read_config(text.as_bytes()).unwrap(), &mut options).unwrap();
        Devices::configuration(options)
    };
    for (index, said) in [("3", "Invalid visible device index: 3"), ("-4", "Invalid visible device index")] {
        let Err(error) = import(&format!("gpu_options {{ visible_device_list: '{index}' }}")) else { panic!("{index} is taken in") };
        assert!(error.to_string().contains(said), "{error}");
    }
    // Without a processor nothing can be opened, and everything be listed.
    let settings = import("device_count { key: 'CPU' value: 0 }").unwrap();
    assert_eq!(settings.list_physical_devices(None).len(), 4);
}
