//! What is said of a way that does not work.

use ekiden_proto::cause::Cause;

use crate::dial::DialError;

/// What went wrong, whose fault it is, and who says so.
pub(super) fn describe(error: &DialError) -> String {
    let DialError { cause, hop, teller, remark, .. } = error;
    let who = hop.as_deref().unwrap_or("the target");
    let what = match cause {
        Cause::Refused => "refuses the connection: nothing listens there",
        Cause::Unreachable => "cannot be reached: there is no route to it",
        Cause::TimedOut => "did not answer in time",
        Cause::NameNotFound => "has a name that does not exist",
        Cause::NameServerFailed => "has a name that cannot be looked up: the name servers fail",
        Cause::Denied => "is no target that this relay allows: see its deny, allow and allow_private",
        Cause::DeniedByHop => "does not let us in, or not there: check keys, passwords and its rules",
        Cause::HopProtocol => "does not speak the protocol it is configured with",
        Cause::HopFailed => "could not connect, and does not say why",
        Cause::Reset => "closed the connection before it could be used",
        Cause::BadAnswer => "answers in another protocol",
        Cause::Exhausted => "cannot be dialled: no descriptors, ports or memory left",
        Cause::Loop => "leads back to a relay that was passed already",
    };
    let said = teller.as_ref().map(|teller| format!(", says {}", teller.name)).unwrap_or_default();
    let more = remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
    format!("{who} {what}{said}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_who_says_what_went_wrong() {
        let cause = DialError::from(Cause::Denied);
        assert!(describe(&cause).starts_with("the target is no target that this relay allows"), "{}", describe(&cause));
    }
}
