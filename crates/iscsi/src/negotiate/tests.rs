use super::*;
use crate::text::Text;

/// A key, what the initiator proposes, what our target answers.
const TABLE: [(&str, &str, &str); 44] = [
    ("HeaderDigest", "None", "None"),
    ("HeaderDigest", "CRC32C", "CRC32C"),
    ("HeaderDigest", "CRC32C,None", "CRC32C"),
    ("HeaderDigest", "None,CRC32C", "None"),
    ("HeaderDigest", "X-other,CRC32C", "CRC32C"),
    ("HeaderDigest", "X-other", "Reject"),
    ("DataDigest", "CRC32C,None", "CRC32C"),
    ("MaxConnections", "1", "1"),
    ("MaxConnections", "65535", "8"),
    ("MaxConnections", "0", "Reject"),
    ("MaxConnections", "65536", "Reject"),
    ("InitialR2T", "Yes", "Yes"),
    ("InitialR2T", "No", "No"),
    ("InitialR2T", "maybe", "Reject"),
    ("ImmediateData", "Yes", "Yes"),
    ("ImmediateData", "No", "No"),
    ("MaxRecvDataSegmentLength", "511", "Reject"),
    ("MaxRecvDataSegmentLength", "16777216", "Reject"),
    ("MaxBurstLength", "512", "512"),
    ("MaxBurstLength", "0x1000", "4096"),
    ("MaxBurstLength", "16776192", "16776192"),
    ("MaxBurstLength", "16777215", "16776192"),
    ("MaxBurstLength", "-1", "Reject"),
    ("MaxBurstLength", "+1000", "Reject"),
    ("MaxBurstLength", "", "Reject"),
    ("FirstBurstLength", "262144", "262144"),
    ("FirstBurstLength", "16777215", "1048576"),
    ("DefaultTime2Wait", "2", "2"),
    ("DefaultTime2Wait", "0", "0"),
    ("DefaultTime2Wait", "3601", "Reject"),
    ("DefaultTime2Retain", "20", "0"),
    ("MaxOutstandingR2T", "1", "1"),
    ("MaxOutstandingR2T", "100", "8"),
    ("DataPDUInOrder", "No", "Yes"),
    ("DataSequenceInOrder", "No", "Yes"),
    ("ErrorRecoveryLevel", "0", "0"),
    ("ErrorRecoveryLevel", "1", "0"),
    ("ErrorRecoveryLevel", "2", "0"),
    ("ErrorRecoveryLevel", "3", "Reject"),
    ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
    ("TaskReporting", "FastAbort", "Reject"),
    ("IFMarker", "Yes", "No"),
    ("OFMarkInt", "1~100", "Reject"),
    ("X-org.example.key", "1", "NotUnderstood"),
];

#[test]
fn every_proposal_is_answered_as_the_table_says() {
    for (key, proposed, answer) in TABLE {
        let mut target = Negotiation::new(Parameters::TARGET, false);
        assert_eq!(target.answer(key, proposed), Ok(Some(answer.into())), "{key}={proposed}");
        // Who proposed it takes the answer, unless there is nothing to agree on.
        if !matches!(answer, "Reject" | "NotUnderstood" | "No") || key == "ImmediateData" {
            let mut ours = Parameters::TARGET;
            ours.connections_max = 65_535;
            assert!(Negotiation::new(ours, false).settle(key, answer), "{key}={answer}");
        }
    }
}

#[test]
fn what_is_agreed_on_is_the_same_on_both_sides() {
    let (mut ours, mut theirs) = (Parameters::INITIATOR, Parameters::TARGET);
    ours.data_digest = Digest::Preferred;
    (ours.segment_bytes_max, theirs.segment_bytes_max) = (4096, 65_536);
    ours.initial_r2t = true;
    let mut initiator = Negotiation::new(ours, false);
    let mut target = Negotiation::new(theirs, false);
    let mut proposal = Text::default();
    initiator.propose(&mut proposal);
    for (key, value) in proposal.pairs() {
        if let Some(answer) = target.answer(key, value).unwrap() {
            assert!(initiator.settle(key, &answer), "{key}={answer}");
        }
    }
    assert!(initiator.settle("MaxRecvDataSegmentLength", "65536"));
    let (one, mut other) = (initiator.agreed(), target.agreed());
    assert_eq!((one.segment_bytes_max, other.segment_bytes_max), (65_536, 4096));
    other.segment_bytes_max = one.segment_bytes_max;
    assert_eq!(one, other);
    assert!(one.has_data_digest() && !one.has_header_digest() && one.initial_r2t);
}

#[test]
fn a_key_is_named_once() {
    let mut target = Negotiation::new(Parameters::TARGET, false);
    assert_eq!(target.answer("InitialR2T", "No"), Ok(Some("No".into())));
    assert_eq!(target.answer("InitialR2T", "No"), Err(Repeated));
}

#[test]
fn what_a_discovery_session_does_not_have_is_irrelevant() {
    let mut target = Negotiation::new(Parameters::TARGET, true);
    assert_eq!(target.answer("MaxBurstLength", "512"), Ok(Some(IRRELEVANT.into())));
    assert_eq!(target.answer("HeaderDigest", "CRC32C"), Ok(Some("CRC32C".into())));
}

#[test]
fn an_answer_beyond_what_was_proposed_is_refused() {
    let mut initiator = Negotiation::new(Parameters::INITIATOR, false);
    for (key, value) in [
        ("MaxOutstandingR2T", "9"),
        ("DataDigest", "X-crc"),
        ("ErrorRecoveryLevel", "1"),
        ("MaxBurstLength", "none"),
        ("DataPDUInOrder", "No"),
        ("InitialR2T", "Reject"),
        ("Unheard", "1"),
    ] {
        assert!(!initiator.settle(key, value), "{key}={value}");
    }
}
