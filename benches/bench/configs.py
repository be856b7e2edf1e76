"""The configuration texts of the peers, made for one listening port and one target."""

import os

from bench import netns

HAPROXY = """
global
    nbthread 2
    maxconn 6000
{extra}
defaults
    mode tcp
    timeout connect 10s
    timeout client 10m
    timeout server 10m
listen relay
    bind 0.0.0.0:{port}
{splice}
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
internal: 0.0.0.0 port = {port}
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
    """Splices when it thinks it worth while, through pipes of the default size."""
    return fill(HAPROXY, place, splice=SPLICE_AUTO, extra="")


def haproxy_1m(place):
    return fill(HAPROXY, place, splice=SPLICE_AUTO, extra=BIG_PIPES)


def haproxy_tuned(place):
    """Splices always. `splice-auto` of 2.6 copies most of a fast download (strace: 34 thousand recvfrom in 2 GiB)."""
    return fill(HAPROXY, place, splice=SPLICE_ALWAYS, extra=BIG_PIPES)


def nginx_stream(place):
    return fill(NGINX_STREAM, place)


def dante(place):
    return fill(DANTE, place)


def squid(place):
    os.chmod(place.folder, 0o777)  # it drops root and must still write its log
    return fill(SQUID, place)
