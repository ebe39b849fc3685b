//! Pages over HTTP, for `metrics` and `dash`. Readers are strangers: their number and their time are bounded, and
//! they may only read.

use crate::error::{Cannot, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// Readers at a time; more wait in the listener's queue.
const READERS: usize = 64;
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
    let site = Rc::new(site);
    let places = std::sync::Arc::new(Semaphore::new(READERS));
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let site = site.clone();
        tokio::task::spawn_local(async move {
            visit(site, stream).await;
            drop(place);
        });
    }
}

async fn visit(site: Rc<impl Site>, stream: TcpStream) {
    let answer = hyper::service::service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(answer(&*site, &request).await) }
    });
    let visit = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), answer);
    // A reader that goes away, or stays too long, is nobody's error.
    let _ = tokio::time::timeout(VISIT, visit).await;
}

async fn answer(site: &impl Site, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let page = Page { kind: TEXT, body: "only GET and HEAD\n".into() };
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, page);
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match site.page(request.uri().path()).await {
        Some(page) => response(StatusCode::OK, page),
        None => {
            let page = Page { kind: TEXT, body: "there is no such page\n".into() };
            response(StatusCode::NOT_FOUND, page)
        }
    }
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

/// Something that is expensive to make: made by one reader at a time, and good for a second.
#[derive(Default)]
pub struct Fresh(Mutex<Option<(Instant, Bytes)>>);

impl Fresh {
    /// What was made within the last second, or what `make` makes now.
    pub async fn get(&self, make: impl AsyncFnOnce() -> Bytes) -> Bytes {
        const FRESH: Duration = Duration::from_secs(1);
        let mut last = self.0.lock().await;
        if let Some((_, bytes)) = last.as_ref().filter(|(made, _)| made.elapsed() < FRESH) {
            return bytes.clone();
        }
        let bytes = make().await;
        *last = Some((Instant::now(), bytes.clone()));
        bytes
    }
}
