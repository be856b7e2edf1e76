"""Configuration texts of the peers for one listening port and one target."""

import os

from bench import netns

HAPROXY = """
global
    nbthread 2
    maxconn 6000
{extra}
defaults
    mode {mode}
    timeout connect 10s
    timeout client 10m
    timeout server 10m
listen relay
    bind 0.0.0.0:{port}
{options}
    server target {ip}:{target_port}
"""

NGINX_STREAM = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user root;
worker_processes auto;
worker_rlimit_nofile {files};
daemon off;
pid {folder}/nginx-stream.pid;
error_log {folder}/nginx-errors.log error;
events {{ worker_connections 16384; }}
stream {{
    server {{
        listen {port} backlog=4096;
        proxy_pass {ip}:{target_port};
    }}
}}
"""

DANTE = """
logoutput: stderr
internal: {address} port = {port}
external: {interface}
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: root
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""

SQUID = """
http_port 0.0.0.0:{port}
http_access allow all
cache deny all
access_log none
cache_log {folder}/squid-cache.log
pid_filename {folder}/squid-{port}.pid
coredump_dir {folder}
netdb_filename none
pinger_enable off
visible_hostname relay
max_filedescriptors 16384
shutdown_lifetime 0 seconds
"""


def fill(text, place, **more):
    return text.format(port=place.port, ip=place.target[0], target_port=place.target[1], folder=place.folder,
                       files=place.files, interface=netns.RELAY_UP_INTERFACE, **more)


SPLICE_AUTO = "    option splice-auto"
SPLICE_ALWAYS = "    option splice-request\n    option splice-response"
BIG_PIPES = "    tune.pipesize 1048576\n    maxpipes 1024"  # enough for every session of the throughput figures


def haproxy(place):
    """Returns a configuration that splices adaptively (`splice-auto`), through pipes of the default size."""
    return fill(HAPROXY, place, mode="tcp", options=SPLICE_AUTO, extra="")


def haproxy_1m(place):
    return fill(HAPROXY, place, mode="tcp", options=SPLICE_AUTO, extra=BIG_PIPES)


def haproxy_tuned(place):
    """Returns a configuration that always splices: `splice-auto` of haproxy 2.6 copies most of a fast download (34,000
    calls of recvfrom in 2 GiB, by strace)."""
    return fill(HAPROXY, place, mode="tcp", options=SPLICE_ALWAYS, extra=BIG_PIPES)


def haproxy_http(place):
    """Returns a configuration of a reverse proxy that reuses connections to the server, as the HTTP proxy of ekiden
    does."""
    return fill(HAPROXY, place, mode="http", options=f"{SPLICE_ALWAYS}\n    http-reuse always", extra=BIG_PIPES)


def nginx_stream(place):
    return fill(NGINX_STREAM, place)


def dante(place):
    return fill(DANTE, place, address="0.0.0.0")


def squid(place):
    os.chmod(place.folder, 0o777)  # squid drops root privileges and must still write its log
    return fill(SQUID, place)

EKIDEN_TCP = """
[[listener]]
bind = "0.0.0.0:{port}"
kind = "tcp"
target = "{target}"
allow_open = true
allow_private = true
"""

EKIDEN_HTTPS = """
version = 1
[[listener]]
bind = "0.0.0.0:{port}"
kind = "http"
tls_certificate = "{certificate}"
tls_key = "{key}"
allow_open = true
allow_private = true
"""

CADDY = """
{{
    admin off
    auto_https off
    persist_config off
    order forward_proxy before respond
}}
:{port} {{
    tls {certificate} {key}
    forward_proxy {{
        acl {{
            allow all
        }}
    }}
}}
"""

EKIDEN_SECTION = """
[[listener]]
bind = "{loopback}:{port}"
kind = "section"
encrypt = {encrypt}
allow_private = true
"""

EKIDEN_RELAY = """
[[relay]]
name = "relay-{number}"
address = "{loopback}:{port}"
key = "{public}"
encrypt = {encrypt}
"""

EKIDEN_ROUTE = """
[[path]]
name = "chain"
relays = [{relays}]

[[route]]
path = ["chain"]
"""

SSHD = """
ListenAddress {loopback}:{port}
HostKey {host}
AuthorizedKeysFile {user}
StrictModes no
PidFile none
"""

STUNNEL = """
foreground = yes
pid =
syslog = no
debug = info
"""

STUNNEL_SERVER = STUNNEL + """
[relay]
accept = {loopback}:{port}
connect = {ip}:{target_port}
key = {key}
cert = {certificate}
"""

STUNNEL_CLIENT = STUNNEL + """
[relay]
client = yes
accept = 0.0.0.0:{port}
connect = {loopback}:{inner}
CAfile = {certificate}
verifyPeer = yes
"""


def ekiden(place, kinds, number, keys, encrypt, admin):
    """Returns the configuration of relay `number` of a chain. The first relay defines the path; each relay lists all
    relays after it."""
    lines = ["version = 1"]
    lines += [f'private_key = "{keys[number].path}"'] if keys[number] else []
    lines += ["[admin]", f'bind = "unix:{admin}"']
    shared = {"loopback": netns.LOOPBACK_IP, "encrypt": str(encrypt).lower()}
    port, following = place.port + number, range(number + 1, len(kinds))
    sections = [n for n in following if kinds[n] == "section"]
    if kinds[number] == "section":
        lines.append(EKIDEN_SECTION.format(port=port, **shared))
    else:
        forwards = following and not sections
        target = f"{netns.LOOPBACK_IP}:{port + 1}" if forwards else f"{place.target[0]}:{place.target[1]}"
        lines.append(EKIDEN_TCP.format(port=port, target=target))
    for n in sections:
        lines.append(EKIDEN_RELAY.format(number=n, port=place.port + n, public=keys[n].public, **shared))
    if sections and kinds[number] == "tcp":
        lines.append(EKIDEN_ROUTE.format(relays=", ".join(f'"relay-{n}"' for n in sections)))
    return "\n".join(lines)


def sshd(port, host, user):
    return SSHD.format(loopback=netns.LOOPBACK_IP, port=port, host=host, user=user)


def stunnel_server(port, target, key, certificate):
    return STUNNEL_SERVER.format(loopback=netns.LOOPBACK_IP, port=port, ip=target[0], target_port=target[1], key=key,
                                 certificate=certificate)


def stunnel_client(port, inner, certificate):
    return STUNNEL_CLIENT.format(loopback=netns.LOOPBACK_IP, port=port, inner=inner, certificate=certificate)


EKIDEN_TRANSPARENT = """
[[listener]]
bind = "0.0.0.0:{port}"
kind = "tproxy"
interfaces = ["{interface}"]
allow = ["*:{server_port}"]
connect = "{connect}"
"""

# As recommended by haproxy's configuration manual and the kernel's tproxy.rst.
HAPROXY_TRANSPARENT = """
global
    nbthread 2
    maxconn 6000
defaults
    mode tcp
    timeout connect 10s
    timeout client 10m
    timeout server 10m
listen relay
    bind 0.0.0.0:{port} transparent
    option splice-auto
    source 0.0.0.0 usesrc client
    server target 0.0.0.0
"""

HAPROXY_RULES = """
table inet haproxy {{
    chain prerouting {{
        type filter hook prerouting priority mangle;
        meta l4proto tcp socket transparent 1 meta mark set 1 accept
        iifname "{interface}" tcp dport {target_port} tproxy ip to :{port} meta mark set 1 accept
    }}
}}
"""


def haproxy_transparent(place):
    return fill(HAPROXY_TRANSPARENT, place), HAPROXY_RULES.format(
        interface=netns.CLIENT_SIDE, port=place.port, target_port=place.target[1])


def ekiden_box(listener, admin, more):
    """Returns the configuration of a relay in a single box, without a key."""
    return "\n".join(["version = 1", "[admin]", f'bind = "unix:{admin}"', listener, more])


def ekiden_transparent(port, server_port, connect):
    """Returns transparent listeners for `server_port`. Traffic to all other ports of the server is only forwarded."""
    return EKIDEN_TRANSPARENT.format(port=port, interface=netns.CLIENT_SIDE, server_port=server_port, connect=connect)


def ekiden_instance(instance, sessions):
    """Returns the settings of one daemon in a box: its instance number, and its session limit, if any."""
    limits = f"[limits]\nsessions = {sessions}\n" if sessions else ""
    return f"[transparent]\ninstance = {instance}\n{limits}"
