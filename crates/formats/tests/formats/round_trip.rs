//! Graphs made at random: both forms keep everything that our structs can express.

use plimsoll_base::DataType;
use plimsoll_formats::{print_graph_def, read_graph_def, write_graph_def};
use plimsoll_graph::{
    ArgDef, AttrDef, AttrList, AttrValue, Attrs, FuncRef, FunctionDef, GraphDef, HostTensor, Library, NodeDef, OpDef, PartialShape, Shape,
    Versions,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9_/]{0,12}", "\\PC{0,6}", any::<String>()]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..10)
}

fn float() -> impl Strategy<Value = f32> {
    any::<u32>().prop_map(f32::from_bits)
}

fn partial_shape() -> impl Strategy<Value = PartialShape> {
    proptest::option::of(vec(proptest::option::of(0..=i64::MAX as u64), 0..4)).prop_map(PartialShape)
}

fn tensor() -> impl Strategy<Value = HostTensor> {
    let number = |data_type: DataType| data_type.size().is_some();
    let fixed = (
        proptest::sample::select(DataType::ALL.iter().copied().filter(move |t| number(*t)).collect::<Vec<_>>()),
        vec(0u64..5, 0..4),
        vec(any::<u8>(), 0..100),
    );
    let fixed = fixed.prop_map(|(data_type, dims, mut bytes)| {
        bytes.truncate(bytes.len() / data_type.size().unwrap() * data_type.size().unwrap());
        HostTensor::from_leading(data_type, Shape::new(dims), &bytes).unwrap()
    });
    let splat = (any::<u64>(), 0u64..1 << 50)
        .prop_map(|(value, elements)| HostTensor::from_leading(DataType::Double, [elements].into(), &value.to_le_bytes()).unwrap());
    let strings = vec(bytes(), 0..4).prop_map(|values| HostTensor::from_strings([values.len() as u64], values).unwrap());
    prop_oneof![4 => fixed, 1 => splat, 1 => strings]
}

fn attr() -> impl Strategy<Value = AttrValue> {
    let leaf = prop_oneof![
        bytes().prop_map(AttrValue::Bytes),
        any::<i64>().prop_map(AttrValue::Int),
        float().prop_map(AttrValue::Float),
        any::<bool>().prop_map(AttrValue::Bool),
        any::<i32>().prop_map(AttrValue::Type),
        partial_shape().prop_map(AttrValue::Shape),
        tensor().prop_map(AttrValue::Tensor),
        text().prop_map(AttrValue::Placeholder),
        Just(AttrValue::Unset),
        // shape { dim { size: 1 name: "n" } }
        Just(AttrValue::Opaque([0x3a, 7, 0x12, 5, 0x08, 1, 0x12, 1, b'n'].into())),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        let func =
            (text(), vec((text(), inner), 0..3)).prop_map(|(name, attrs)| FuncRef { name, attrs: attrs.into_iter().collect() }).boxed();
        let list = prop_oneof![
            Just(AttrList::default()),
            vec(bytes(), 1..4).prop_map(|bytes| AttrList { bytes, ..AttrList::default() }),
            vec(any::<i64>(), 1..4).prop_map(|ints| AttrList { ints, ..AttrList::default() }),
            vec(float(), 1..4).prop_map(|floats| AttrList { floats, ..AttrList::default() }),
            vec(any::<bool>(), 1..4).prop_map(|bools| AttrList { bools, ..AttrList::default() }),
            vec(any::<i32>(), 1..4).prop_map(|types| AttrList { types, ..AttrList::default() }),
            vec(partial_shape(), 1..4).prop_map(|shapes| AttrList { shapes, ..AttrList::default() }),
            vec(tensor(), 1..4).prop_map(|tensors| AttrList { tensors, ..AttrList::default() }),
            vec(func.clone(), 1..3).prop_map(|funcs| AttrList { funcs, ..AttrList::default() }),
        ];
        prop_oneof![func.prop_map(AttrValue::Func), list.prop_map(|list| AttrValue::List(Box::new(list)))]
    })
}

fn attrs() -> impl Strategy<Value = Attrs> {
    vec((text(), attr()), 0..40).prop_map(|attrs| attrs.into_iter().collect())
}

/// Encoded fields that no message has: numbers from 1000 on, each with a varint of one byte.
fn carried() -> impl Strategy<Value = Vec<u8>> {
    vec((1000u32..2000, 0u8..128), 0..3)
        .prop_map(|fields| fields.iter().flat_map(|(number, value)| [(number << 3) as u8 | 0x80, (number >> 4) as u8, *value]).collect())
}

fn node() -> impl Strategy<Value = NodeDef> {
    (text(), text(), vec(text(), 0..3), text(), attrs(), carried()).prop_map(|(name, op, inputs, device, attrs, carried)| NodeDef {
        name,
        op,
        inputs,
        device,
        attrs,
        carried,
    })
}

fn op_def() -> impl Strategy<Value = OpDef> {
    let arg = (text(), any::<i32>(), text(), text(), text(), any::<bool>(), carried());
    let arg = arg
        .prop_map(|(name, data_type, type_attr, number_attr, type_list_attr, is_ref, carried)| ArgDef {
            name,
            data_type,
            type_attr,
            number_attr,
            type_list_attr,
            is_ref,
            carried,
        })
        .boxed();
    let attr = (text(), text(), proptest::option::of(attr()), proptest::option::of(any::<i64>()), proptest::option::of(attr()), carried());
    let attr = attr.prop_map(|(name, kind, default, minimum, allowed, carried)| AttrDef { name, kind, default, minimum, allowed, carried });
    let flags = any::<[bool; 4]>();
    (text(), vec(arg.clone(), 0..3), vec(arg, 0..3), vec(text(), 0..2), vec(attr, 0..3), flags, carried()).prop_map(
        |(name, inputs, outputs, control_outputs, attrs, flags, carried)| {
            let [is_stateful, is_commutative, is_aggregate, allows_uninitialized_input] = flags;
            OpDef {
                name,
                inputs,
                outputs,
                control_outputs,
                attrs,
                is_stateful,
                is_commutative,
                is_aggregate,
                allows_uninitialized_input,
                carried,
            }
        },
    )
}

fn function() -> impl Strategy<Value = FunctionDef> {
    let names = || btree_map(text(), text(), 0..3);
    let arguments = (btree_map(any::<u32>(), attrs(), 0..2), btree_map(any::<u32>(), any::<u32>(), 0..2));
    (op_def(), vec(node(), 0..3), names(), names(), attrs(), arguments, carried()).prop_map(
        |(signature, nodes, ret, control_ret, attrs, (arg_attrs, ids), carried)| FunctionDef {
            signature,
            nodes,
            ret,
            control_ret,
            attrs,
            arg_attrs,
            resource_arg_unique_id: ids,
            carried,
        },
    )
}

fn graph() -> impl Strategy<Value = GraphDef> {
    let pairs = || vec((text(), text()), 0..2);
    let library = (vec(function(), 0..3), pairs(), pairs()).prop_map(|(functions, gradients, registered_gradients)| Library {
        functions,
        gradients,
        registered_gradients,
    });
    let versions = (any::<i32>(), any::<i32>(), vec(any::<i32>(), 0..3)).prop_map(|(producer, min_consumer, bad_consumers)| Versions {
        producer,
        min_consumer,
        bad_consumers,
    });
    (vec(node(), 0..5), library, versions, carried()).prop_map(|(nodes, library, versions, carried)| GraphDef {
        nodes,
        library,
        versions,
        carried,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Compared by their encoding, in which every bit counts (a NaN does not equal itself).
    #[test]
    fn both_forms_keep_every_graph(graph in graph()) {
        let written = write_graph_def(&graph);
        prop_assert_eq!(write_graph_def(&read_graph_def(&written).unwrap()), written.clone());
        let text = print_graph_def(&graph);
        prop_assert_eq!(write_graph_def(&read_graph_def(text.as_bytes()).unwrap()), written, "{}", text);
    }
}
