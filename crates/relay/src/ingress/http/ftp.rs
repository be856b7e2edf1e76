//! placeholder
use super::exchange::After;
use crate::ingress::Inbox;
use crate::session::Session;
use ekiden_proto::event::End;
use ekiden_proto::wire::http::RequestHead;
pub async fn run(_s: &Session, _i: &mut Inbox<'_>, _h: RequestHead) -> Result<After, End> {
    Err(End::BadHandshake("ftp"))
}
