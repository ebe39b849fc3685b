//! The client machine and its handle.
use crate::message::Message;
use crate::tree::Errno;
#[derive(Clone)]
pub struct Conn {}
pub enum CallError { Errno(Errno), Lost(String) }
impl From<CallError> for Errno { fn from(e: CallError) -> Errno { match e { CallError::Errno(e)=>e, CallError::Lost(w)=>Errno::because(5,w)} } }
pub type Call = std::pin::Pin<Box<dyn Future<Output=Result<Message,CallError>>+Send>>;
impl Conn {
  pub fn call(&self, _m: Message) -> Call { Box::pin(async { Err(CallError::Lost("".into())) }) }
  pub fn is_lost(&self) -> bool { false }
  pub async fn closed(&self) -> String { String::new() }
  pub fn fid(&self) -> u32 { 0 }
  pub fn release_fid_after(&self, _fid: u32, _c: Call) {}
}
