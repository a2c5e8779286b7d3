//! A TCP proxy of the tests, between one node and its database: it cuts, refuses, delays, holds back and
//! loses, as networks do.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How often whoever is held back looks whether it goes on.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What the proxy does to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// They go on.
    Clear,
    /// They go on later, piece by piece.
    Slow(Duration),
    /// They go on when the weather is better. Whoever sends them is not told.
    Still,
    /// What is asked goes on, and what is answered is lost.
    Deaf,
    /// Nobody is let in, and whoever is there is cut off.
    Closed,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Asked,
    Answered,
}

struct Sky {
    weather: Weather,
    target: u16,
    streams: Vec<TcpStream>,
}

/// A proxy. It ends with the process.
#[derive(Clone)]
pub(super) struct Proxy {
    address: SocketAddr,
    sky: Arc<Mutex<Sky>>,
}

impl Proxy {
    /// Before this port of the loopback.
    pub(super) fn before(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let sky = Sky { weather: Weather::Clear, target, streams: Vec::new() };
        let proxy = Self { address, sky: Arc::new(Mutex::new(sky)) };
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepting.carry(client);
            }
        });
        proxy
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Where new connections lead from now on.
    pub(super) fn lead_to(&self, target: u16) {
        self.sky.lock().unwrap().target = target;
    }

    /// The weather from now on.
    pub(super) fn turn(&self, weather: Weather) {
        self.sky.lock().unwrap().weather = weather;
        if weather == Weather::Closed {
            self.cut();
        }
    }

    /// Cuts every connection off.
    pub(super) fn cut(&self) {
        for stream in self.sky.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn carry(&self, client: TcpStream) {
        // A client that connects meanwhile waits in the kernel's queue, instead of taking files of this process.
        while self.sky.lock().unwrap().weather == Weather::Still {
            thread::sleep(LOOK_AGAIN);
        }
        let mut sky = self.sky.lock().unwrap();
        if sky.weather == Weather::Closed {
            return;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, sky.target)) else { return };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            sky.streams.push(stream.try_clone().unwrap());
        }
        drop(sky);
        let both = [(Way::Asked, &client, &server), (Way::Answered, &server, &client)];
        for (way, from, to) in both {
            let (proxy, from, to) = (self.clone(), from.try_clone(), to.try_clone());
            thread::spawn(move || {
                let (Ok(from), Ok(to)) = (from, to) else { return };
                proxy.pass(way, from, to);
            });
        }
    }

    fn pass(&self, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if self.goes_on(way) && to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits as the weather demands, and says whether the bytes go on at all.
    fn goes_on(&self, way: Way) -> bool {
        loop {
            let weather = self.sky.lock().unwrap().weather;
            match weather {
                Weather::Clear | Weather::Closed => return true,
                Weather::Slow(delay) => {
                    thread::sleep(delay);
                    return true;
                }
                Weather::Deaf => return way == Way::Asked,
                Weather::Still => thread::sleep(LOOK_AGAIN),
            }
        }
    }
}
