//! Real SYNs on the loopback interface of a network namespace, queued by iptables.

use super::*;
use crate::namespace::run_in_namespace;
use crate::poll::Poll;
use ekiden_proto::wire::syn::Syn;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const NUMBER: u16 = 7;

const MARK_SYNS: &str = "iptables -t raw -A PREROUTING -p tcp --syn -j MARK --set-mark 5";
const QUEUE_SYNS: &str = "iptables -t raw -A PREROUTING -p tcp --syn -j NFQUEUE --queue-num 7 --queue-bypass";
const QUEUE_SYNS_OF_IPV6: &str = "ip6tables -t raw -A PREROUTING -p tcp --syn -j NFQUEUE --queue-num 7";
/// Behind the queue, only the mark of the verdict passes.
const DROP_OTHER_MARKS: &str = "iptables -t mangle -A PREROUTING -p tcp --syn -m mark ! --mark 0xe1100001 -j DROP";

/// The next packet: id, mark, interface and payload.
fn next(queue: &NfQueue) -> (u32, u32, u32, Vec<u8>) {
    let mut got = None;
    while got.is_none() {
        let mut poll = Poll::new(vec![queue.as_fd()]);
        poll.wait(Some(Duration::from_secs(10))).unwrap();
        assert!(poll.any_ready(), "no packet came");
        queue
            .receive(|packet| got = Some((packet.id, packet.mark, packet.interface, packet.payload.to_vec())))
            .unwrap();
    }
    got.unwrap()
}

fn connect<'s>(scope: &'s Scope<'s, '_>, to: SocketAddr) -> ScopedJoinHandle<'s, io::Result<TcpStream>> {
    scope.spawn(move || TcpStream::connect_timeout(&to, Duration::from_secs(10)))
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_packet_waits_for_its_verdict_and_goes_on_with_another_mark() {
    run_in_namespace(&[MARK_SYNS, QUEUE_SYNS, DROP_OTHER_MARKS], || {
        let queue = NfQueue::bind(NUMBER, 16).unwrap();
        let (_listener, address) = listener();
        std::thread::scope(|scope| {
            let client = connect(scope, address);
            let (id, mark, interface, payload) = next(&queue);
            assert_eq!((mark, interface), (5, 1));
            assert_eq!(Syn::parse(&payload).unwrap().server.0, address);
            assert!(!client.is_finished());
            queue.set_verdict(id, Verdict::Accept { mark: 0xe110_0001 }).unwrap();
            client.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_dropped_syn_comes_again() {
    run_in_namespace(&[QUEUE_SYNS], || {
        let queue = NfQueue::bind(NUMBER, 16).unwrap();
        let (_listener, address) = listener();
        std::thread::scope(|scope| {
            let client = connect(scope, address);
            let (first, _, _, payload) = next(&queue);
            queue.set_verdict(first, Verdict::Drop).unwrap();
            let (second, _, _, again) = next(&queue);
            assert!(!client.is_finished() && second != first);
            assert_eq!(Syn::parse(&payload), Syn::parse(&again));
            queue.set_verdict(second, Verdict::Accept { mark: 0 }).unwrap();
            client.join().unwrap().unwrap();
        });
    });
}

#[test]
fn ipv6_comes_to_the_same_queue() {
    run_in_namespace(&[QUEUE_SYNS_OF_IPV6], || {
        let queue = NfQueue::bind(NUMBER, 16).unwrap();
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let client = connect(scope, address);
            let (id, _, _, payload) = next(&queue);
            assert_eq!(Syn::parse(&payload).unwrap().server.0, address);
            queue.set_verdict(id, Verdict::Accept { mark: 0 }).unwrap();
            client.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_full_queue_lets_packets_pass() {
    run_in_namespace(&[QUEUE_SYNS], || {
        let queue = NfQueue::bind(NUMBER, 1).unwrap();
        let (_listener, address) = listener();
        std::thread::scope(|scope| {
            let held = connect(scope, address);
            let (id, ..) = next(&queue);
            connect(scope, address).join().unwrap().unwrap();
            assert!(!held.is_finished());
            queue.set_verdict(id, Verdict::Accept { mark: 0 }).unwrap();
            held.join().unwrap().unwrap();
        });
    });
}

/// What a relay that dies does to the SYNs it held: they come again, and `bypass` lets them through.
#[test]
fn a_closed_queue_is_passed_by_and_its_number_is_free() {
    run_in_namespace(&[QUEUE_SYNS], || {
        let queue = NfQueue::bind(NUMBER, 16).unwrap();
        let (_listener, address) = listener();
        std::thread::scope(|scope| {
            let client = connect(scope, address);
            next(&queue);
            drop(queue);
            client.join().unwrap().unwrap();
        });
        NfQueue::bind(NUMBER, 16).unwrap();
    });
}

#[test]
fn a_number_is_bound_once() {
    run_in_namespace(&[], || {
        check_available().unwrap();
        let _queue = NfQueue::bind(NUMBER, 16).unwrap();
        assert_eq!(NfQueue::bind(NUMBER, 16).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        NfQueue::bind(NUMBER + 1, 16).unwrap();
    });
}

#[test]
fn a_verdict_on_nothing_is_no_error() {
    run_in_namespace(&[], || {
        let queue = NfQueue::bind(NUMBER, 16).unwrap();
        let nothing = queue.receive(|packet| panic!("{packet:?}")).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        queue.set_verdict(99, Verdict::Drop).unwrap();
        queue.receive(|packet| panic!("{packet:?}")).unwrap();
    });
}

#[test]
fn without_the_right_the_kernel_says_so() {
    run_in_namespace(&[], || {
        // SAFETY: setresuid(2) takes numbers; the bare system call changes this thread alone, and it ends here.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(done, 0);
        assert_eq!(check_available().unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(NfQueue::bind(NUMBER, 16).unwrap_err().raw_os_error(), Some(libc::EPERM));
    });
}

/// As at an upgrade: the socket goes along, and the packet that waits is still there.
#[test]
fn a_queue_goes_on_with_whoever_has_its_socket() {
    run_in_namespace(&[QUEUE_SYNS], || {
        let queue = NfQueue::bind(NUMBER, 16).unwrap();
        let (_listener, address) = listener();
        std::thread::scope(|scope| {
            let client = connect(scope, address);
            let (id, ..) = next(&queue);
            let (here, there) = crate::along::seqpacket_pair().unwrap();
            crate::along::send(&here, b"queue", Some(&queue)).unwrap();
            drop(queue);
            let (_, along) = crate::along::receive(&there, &mut [0; 8]).unwrap();
            let queue = NfQueue::from_fd(along.unwrap(), NUMBER);
            queue.set_verdict(id, Verdict::Accept { mark: 0 }).unwrap();
            client.join().unwrap().unwrap();
            assert_eq!(NfQueue::bind(NUMBER, 16).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        });
    });
}
