//! The control connection to an FTP server, and its data connections.
//!
//! The client crate obtains data connections from a function that may run on any thread, while dialling never leaves
//! its thread. The function therefore only sends the port of the data connection and waits, and
//! [`FtpConnection::start_transfer`] dials while the client crate is not polled. The address in a passive reply is
//! ignored, and only its port is used: a server must not direct the relay to another host.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;
use suppaftp::tokio::{AsyncFtpStream, AsyncNoTlsStream, TransferStream};
use suppaftp::types::{FileType, FormatControl};
use suppaftp::{FtpError, FtpResult, Mode, Status};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::FtpFailure;
use super::url::{Latin1, Login, TransferForm};
use crate::dial::{Dialled, into_owned_stream};
use crate::path::PathChoice;
use crate::session::{ConnectedPath, Session, dial};

/// A data connection, ended by [`FtpConnection::complete`].
pub type Transfer = TransferStream<AsyncNoTlsStream>;

/// The command that uses a data connection.
#[derive(Clone, Copy)]
pub enum TransferCommand<'a> {
    /// `RETR`: download a file.
    Retrieve(&'a str),
    /// `STOR`: upload a file.
    Store(&'a str),
    /// `LIST` of the working directory.
    List,
}

/// The replies that begin a transfer.
const TRANSFER_STARTED: [Status; 2] = [Status::AboutToSend, Status::AlreadyOpen];

/// A control connection that has logged in.
pub struct FtpConnection<'a> {
    ftp: AsyncFtpStream,
    dials: mpsc::Receiver<DialRequest>,
    server_path: ServerPath<'a>,
}

/// A request of the client crate for a data connection.
struct DialRequest {
    port: u16,
    reply: oneshot::Sender<TcpStream>,
}

/// The path to the server, for data connections.
struct ServerPath<'a> {
    session: &'a Session,
    /// The path of the control connection: the server may require the same source address for data connections.
    path_choice: PathChoice,
    host: Host,
    /// The address of the server, if the path is direct; hops do not report the address.
    address: Option<IpAddr>,
}

impl<'a> FtpConnection<'a> {
    /// Connects to the server and logs in.
    pub async fn open(session: &'a Session, target: &Target, login: &Login) -> Result<Self, FtpFailure> {
        let started_at = Instant::now();
        let ConnectedPath { dialled, path_choice, .. } =
            dial(&session.dial_context, target).await.map_err(FtpFailure::Dial)?;
        let address = path_choice.path.is_direct().then_some(dialled.server.0.ip());
        let server_path = ServerPath { session, path_choice, host: target.host.clone(), address };
        let control = server_path.adopt(dialled, started_at).await?;
        let ftp = with_timeout(server_path.reply_timeout(), AsyncFtpStream::connect_with_stream(control)).await?;
        // FTP uses one data connection at a time.
        let (requests, dials) = mpsc::channel(1);
        let mut ftp =
            ftp.passive_stream_builder(move |address| Box::pin(request_dial(requests.clone(), address.port())));
        // Extended passive mode (RFC 2428, 3) has no address in its reply, so it works through address translation and
        // for IPv6.
        ftp.set_mode(Mode::ExtendedPassive);
        ftp.set_encoding(Latin1).await;
        with_timeout(server_path.reply_timeout(), ftp.login(&login.user, &login.password)).await?;
        Ok(Self { ftp, dials, server_path })
    }

    /// Sends `TYPE` (RFC 959 section 4.1.2).
    pub async fn set_form(&mut self, form: TransferForm) -> Result<(), FtpFailure> {
        let file_type = match form {
            TransferForm::Text => FileType::Ascii(FormatControl::Default),
            TransferForm::Binary | TransferForm::Folder => FileType::Image,
        };
        with_timeout(self.server_path.reply_timeout(), self.ftp.transfer_type(file_type)).await
    }

    /// Sends `SIZE` (RFC 3659, 4). Returns the size in bytes.
    pub async fn size(&mut self, path: &str) -> Result<u64, FtpFailure> {
        with_timeout(self.server_path.reply_timeout(), self.ftp.size(path)).await.map(|size| size as u64)
    }

    /// Sends `MDTM` (RFC 3659, 3). Returns the date in the format of HTTP (RFC 9110, 5.6.7); `None` if the server
    /// refuses.
    pub async fn modified(&mut self, path: &str) -> Result<Option<String>, FtpFailure> {
        match with_timeout(self.server_path.reply_timeout(), self.ftp.mdtm(path)).await {
            Ok(date) => Ok(Some(date.format("%a, %d %b %Y %H:%M:%S GMT").to_string())),
            Err(FtpFailure::Reply(_) | FtpFailure::Refused(..)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends `CWD` (RFC 959 section 4.1.1).
    pub async fn enter(&mut self, path: &str) -> Result<(), FtpFailure> {
        with_timeout(self.server_path.reply_timeout(), self.ftp.cwd(path)).await
    }

    /// Opens a data connection and sends `command`. Tries extended passive mode first, then passive mode, which older
    /// servers support.
    pub async fn start_transfer(&mut self, command: TransferCommand<'_>) -> Result<Transfer, FtpFailure> {
        let mut dialled = false;
        match self.try_start_transfer(command, &mut dialled).await {
            Err(FtpFailure::Reply(_) | FtpFailure::Refused(..)) if !dialled => {
                self.ftp.set_mode(Mode::Passive);
                self.try_start_transfer(command, &mut dialled).await
            }
            decided => decided,
        }
    }

    async fn try_start_transfer(
        &mut self,
        command: TransferCommand<'_>,
        dialled: &mut bool,
    ) -> Result<Transfer, FtpFailure> {
        let Self { ftp, dials, server_path } = self;
        let beginning = async {
            let mut transfer_start = pin!(send_command(ftp, command));
            loop {
                tokio::select! {
                    transfer = &mut transfer_start => return transfer.map_err(FtpFailure::from),
                    Some(DialRequest { port, reply }) = dials.recv() => {
                        *dialled = true;
                        // The receiver is dropped only if `transfer_start` has failed, which the next iteration
                        // detects.
                        let _ = reply.send(server_path.dial(port).await?);
                    }
                }
            }
        };
        timeout(server_path.reply_timeout(), beginning).await.unwrap_or_else(|_| Err(Cause::TimedOut.into()))
    }

    /// Closes a data connection and reads the reply to the transfer.
    pub async fn complete(&self, transfer: Transfer, time_limit: Duration) -> Result<(), FtpFailure> {
        // The socket closes only after the session has dropped its duplicate.
        self.server_path.session.release_upstream();
        with_timeout(time_limit, transfer.finish()).await
    }

    /// Sends `QUIT`, without waiting for the reply.
    pub async fn quit(mut self) {
        let _ = timeout(Duration::ZERO, self.ftp.quit()).await;
    }
}

/// Returns the socket of a data connection.
pub fn socket(transfer: &Transfer) -> &TcpStream {
    transfer.get_ref().get_ref()
}

async fn send_command(ftp: &mut AsyncFtpStream, command: TransferCommand<'_>) -> FtpResult<Transfer> {
    match command {
        TransferCommand::Retrieve(path) => ftp.retr_as_stream(path).await,
        TransferCommand::Store(path) => ftp.put_with_stream(path).await,
        // A server may parse a name after LIST as an option, so the directory was entered with CWD before.
        TransferCommand::List => ftp.custom_data_command("LIST", &TRANSFER_STARTED).await.map(|(_, transfer)| transfer),
    }
}

/// Requests a data connection and waits until it is dialled. The client crate calls this function.
async fn request_dial(requests: mpsc::Sender<DialRequest>, port: u16) -> FtpResult<TcpStream> {
    let (reply, dialled) = oneshot::channel();
    let closed = |_| FtpError::ConnectionError(io::ErrorKind::NotConnected.into());
    requests.try_send(DialRequest { port, reply }).map_err(|_| closed(()))?;
    dialled.await.map_err(|_| closed(()))
}

impl ServerPath<'_> {
    /// Returns the timeout of a reply.
    fn reply_timeout(&self) -> Duration {
        self.session.context.config.timeouts.connect
    }

    /// Returns the host of a data connection. A name may have several addresses, and only the server at the address of
    /// the control connection expects the data connection. That address is dialled if the access rules allow it both
    /// under the name and as an address.
    fn host(&self, port: u16) -> Host {
        let context = self.session.dial_context.current_listener();
        let rules = self.session.dial_context.dialler_for(&context, 1).rules;
        let permitted = |host, ip| rules.permits(host, Some(ip), port);
        match self.address {
            Some(ip) if permitted(&self.host, ip) && permitted(&Host::from(ip), ip) => Host::from(ip),
            _ => self.host.clone(),
        }
    }

    async fn dial(&self, port: u16) -> Result<TcpStream, FtpFailure> {
        let target = Target::new(self.host(port), port);
        let target =
            target.map_err(|_| FtpFailure::Refused(502, "The server gave no valid port for the data connection."))?;
        let (session, started_at) = (self.session, Instant::now());
        let context = session.dial_context.current_listener();
        let dialler = session.dial_context.dialler_for(&context, 1);
        let dialled = dialler.connect(&self.path_choice, &target, &session.dial_context.open_params()).await;
        self.adopt(dialled.map_err(FtpFailure::Dial)?, started_at).await
    }

    /// Records a dialled connection in the session, and returns its stream. The client crate owns its sockets, so the
    /// session samples a duplicate.
    async fn adopt(&self, dialled: Dialled, started_at: Instant) -> Result<TcpStream, FtpFailure> {
        let sampled_stream = duplicate(&dialled.stream).map_err(|_| FtpFailure::from(Cause::Exhausted))?;
        let (stream, server) = into_owned_stream(dialled).await.map_err(FtpFailure::Dial)?;
        self.session.on_connected(server, Rc::new(sampled_stream), started_at);
        Ok(stream)
    }
}

fn duplicate(stream: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into())
}

async fn with_timeout<T>(time_limit: Duration, work: impl Future<Output = FtpResult<T>>) -> Result<T, FtpFailure> {
    match timeout(time_limit, work).await {
        Ok(result) => result.map_err(FtpFailure::from),
        Err(_) => Err(Cause::TimedOut.into()),
    }
}

impl From<FtpError> for FtpFailure {
    fn from(error: FtpError) -> Self {
        match error {
            FtpError::UnexpectedResponse(response) => Self::Reply(response),
            FtpError::ConnectionError(error) if error.kind() != io::ErrorKind::InvalidData => Cause::Reset.into(),
            _ => Self::Refused(502, "The server violates the FTP protocol."),
        }
    }
}
