//! Protobuf's text form, both ways between text and the wire. The structs never meet it: text is transcoded to wire bytes and
//! read like a binary file, and printed from wire bytes.
//!
//! Nothing is lost on the way. Protobuf prints a field that the schema does not know under its number (`7: 3`,
//! `7: 0x00000003`, `7: "…"`). So are values printed that text cannot express (a NaN with a payload). That form is read again.

mod lexer;
mod parse;
mod print;

pub(crate) use parse::parse;
pub(crate) use print::print;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn there_and_back(root: &str, text: &str) -> String {
        let schema = Schema::tensorflow();
        let root = schema.message(root).unwrap();
        let wire = parse(&schema, root, text).unwrap();
        let printed = print(&schema, root, &wire).unwrap();
        assert_eq!(parse(&schema, root, &printed).unwrap(), wire, "{printed}");
        printed
    }

    fn error(root: &str, text: &str) -> String {
        let schema = Schema::tensorflow();
        plimsoll_base::Error::from(parse(&schema, schema.message(root).unwrap(), text).unwrap_err()).to_string()
    }

    #[test]
    fn every_spelling_is_read() {
        let text = r#"
            # a comment
            allow_soft_placement: True; log_device_placement: 0,
            device_count < key: 'CPU' value: 0x2 >
            device_count: { key: "G" "PU" value: -1 }
            device_filters: ["/job:a", '/job:\x62', "\303\244\n\u00e4"]
            gpu_options { per_process_gpu_memory_fraction: .5 experimental { virtual_devices { memory_limit_mb: [1.5f, 2e3, inf] } } }
            graph_options { optimizer_options { opt_level: L0 global_jit_level: 2 } }
        "#;
        let expected = r#"allow_soft_placement: true
log_device_placement: false
device_count {
  key: "CPU"
  value: 2
}
device_count {
  key: "GPU"
  value: -1
}
device_filters: "/job:a"
device_filters: "/job:b"
device_filters: "\303\244\n\303\244"
gpu_options {
  per_process_gpu_memory_fraction: 0.5
  experimental {
    virtual_devices {
      memory_limit_mb: 1.5
      memory_limit_mb: 2000.0
      memory_limit_mb: inf
    }
  }
}
graph_options {
  optimizer_options {
    opt_level: L0
    global_jit_level: ON_2
  }
}
"#;
        assert_eq!(there_and_back("ConfigProto", text), expected);
    }

    #[test]
    fn floats_keep_their_bits() {
        let text = "float_val: 1e-45\nfloat_val: -0.0\nfloat_val: nan\nfloat_val: 3.4028235e38\n5: 0xffc00001\ndouble_val: 5e-324\n6: 0x7ff8000000000001\n";
        assert_eq!(there_and_back("TensorProto", text), text);
    }

    #[test]
    fn unknown_fields_are_printed_and_read_by_number() {
        let text = "name: \"n\"\n99: 7\n99: 0x00000008\n99: 0x0000000000000009\n99: \"\\001x\"\n1: \"again\"\n";
        assert_eq!(there_and_back("NodeDef", text), text);
    }

    #[test]
    fn flaws_are_placed() {
        for (root, text, fragment) in [
            ("ConfigProto", "allow_soft_placement: maybe", "line 1, column 23: 'maybe' is not of type bool"),
            ("ConfigProto", "\n  no_such_field: 1", "line 2, column 3: ConfigProto has no field 'no_such_field'"),
            ("ConfigProto", "gpu_options { visible_device_list: 3 }", "text in quotes"),
            ("ConfigProto", "gpu_options {", "closing '}'"),
            ("ConfigProto", "gpu_options { >", "'>'"),
            ("ConfigProto", "intra_op_parallelism_threads: 2147483648", "'2147483648' is not of type int32"),
            ("ConfigProto", "intra_op_parallelism_threads: 1 intra_op_parallelism_threads: 1", "stands there twice"),
            ("ConfigProto", "device_filters: 'a", "not closed"),
            ("ConfigProto", "device_filters: 'a\\q'", "escape"),
            ("ConfigProto", "[x.y] { }", "extension"),
            ("ConfigProto", "graph_options { optimizer_options { opt_level: L7 } }", "'L7' is no"),
            ("ConfigProto", "\u{1}", "'\\u{1}'"),
            ("ConfigProto", "device_filters: ['a' 'b', ]", "text in quotes"),
            ("ConfigProto", "1: 18446744073709551616", "is not a 64-bit number"),
        ] {
            let error = error(root, text);
            assert!(error.contains(fragment), "{text:?}: {error:?} lacks {fragment:?}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = "list_value { values { ".repeat(60) + &"} } ".repeat(60);
        assert!(error("StructuredValue", &deep).contains("more than 100 deep"));
        assert!(error("StructuredValue", &"7 {".repeat(1_000_000)).contains("more than 100 deep"));
    }
}
