//! Pages over HTTP, for `metrics` and `dash`. Readers are strangers: their number and their time are bounded, who says
//! nothing makes way for who asks, and they may only read.

mod visits;

use crate::error::{Cannot, Result};
use futures_util::future::{LocalBoxFuture, Shared};
use futures_util::{FutureExt, TryFutureExt};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use visits::{Visit, Visits};

/// How long a reader may take for a request's head, and for its whole visit.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
const VISIT: Duration = Duration::from_secs(60);
/// After an accept that failed, as without descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// What a page may load, and from where: from here alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a site shows at its paths.
pub trait Site: 'static {
    /// The page at a path; None if there is none.
    async fn page(&self, path: &str) -> Option<Page>;
}

/// A page: its media type and its bytes.
pub struct Page {
    pub kind: &'static str,
    pub body: Bytes,
}

/// Listens at an address; with the address that it is.
pub async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let what = || format!("listen on {address}");
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let told = Err::<(), _>(error).cannot(what).expect_err("it was an error");
        if is_taken { told.hint("name another port with --listen; 0 takes any") } else { told }
    })?;
    let address = listener.local_addr().cannot(what)?;
    Ok((listener, address))
}

/// Shows a site until the process ends.
pub async fn serve(listener: TcpListener, site: impl Site) {
    let (site, visits) = (Rc::new(site), Rc::new(Visits::default()));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let site = site.clone();
        visits.admit(async move |visit| serve_one(site, stream, visit).await).await;
    }
}

async fn serve_one(site: Rc<impl Site>, stream: TcpStream, visit: Rc<Visit>) {
    let from = From::of(&stream);
    let answer = hyper::service::service_fn(move |request| {
        let (site, visit) = (site.clone(), visit.clone());
        async move {
            let _asking = visit.asks();
            Ok::<_, Infallible>(answer(&*site, from, &request).await)
        }
    });
    let visit = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), answer);
    // A reader that goes away, or stays too long, is nobody's error.
    let _ = tokio::time::timeout(VISIT, visit).await;
}

/// Where a reader comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// This machine: the reader may be a browser in which a page from anywhere runs.
    Here,
    /// Another machine, or this one by its outer address: whoever gets that far may read.
    Elsewhere,
}

impl From {
    fn of(stream: &TcpStream) -> From {
        let to = stream.local_addr().map(|address| address.ip().to_canonical());
        if to.is_ok_and(|address| address.is_loopback()) { From::Here } else { From::Elsewhere }
    }

    /// Whether a reader who calls us by this name may be answered. A page from elsewhere can give our loopback address to
    /// a name of its own, and would then count as ours in the browser: who means this machine says so, or its number.
    fn may_call_us(self, host: Option<&HeaderValue>) -> bool {
        let Some(host) = host.filter(|_| self == From::Here) else { return true };
        let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    }
}

async fn answer(
    site: &impl Site,
    from: From,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    if !from.may_call_us(request.headers().get(HOST)) {
        return told(StatusCode::MISDIRECTED_REQUEST, "ask by localhost or by the address\n");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = told(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match site.page(request.uri().path()).await {
        Some(page) => response(StatusCode::OK, page),
        None => told(StatusCode::NOT_FOUND, "there is no such page\n"),
    }
}

fn told(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, Page { kind: "text/plain; charset=utf-8", body: text.into() })
}

fn response(status: StatusCode, page: Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(page.body));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, page.kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Something that is expensive to make: made at most once at a time, and good for a second.
#[derive(Default)]
pub struct Fresh(RefCell<Option<Made>>);

/// What is being made, or was.
struct Made {
    begun: Instant,
    task: AbortHandle,
    bytes: Shared<LocalBoxFuture<'static, Bytes>>,
}

impl Fresh {
    /// What was begun within the last second or is being made, or what `make` makes now.
    pub async fn get(&self, make: impl Future<Output = Bytes> + 'static) -> Bytes {
        const FRESH: Duration = Duration::from_secs(1);
        let is_good = |made: &&Made| !made.task.is_finished() || made.begun.elapsed() < FRESH;
        let last = self.0.borrow().as_ref().filter(is_good).map(|made| made.bytes.clone());
        let bytes = last.unwrap_or_else(|| self.begin(make));
        bytes.await
    }

    /// Makes it in a task: who asked first may go away, and the others, who come anew each time, would begin as often.
    fn begin(
        &self,
        make: impl Future<Output = Bytes> + 'static,
    ) -> Shared<LocalBoxFuture<'static, Bytes>> {
        let (begun, making) = (Instant::now(), tokio::task::spawn_local(make));
        let task = making.abort_handle();
        let bytes = making.unwrap_or_else(|_| Bytes::new()).boxed_local().shared();
        *self.0.borrow_mut() = Some(Made { begun, task, bytes: bytes.clone() });
        bytes
    }
}

#[cfg(test)]
mod tests;
