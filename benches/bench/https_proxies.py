"""The HTTPS proxies of `make bench-tls`, and the download through them."""

import json
import os
import subprocess
import sys

from bench import configs, netns, origin, speak
from bench.figures import GIB, curl, with_cpu
from bench.programs import HERE, Trouble, output_of
from bench.treatments import EARLIER, EKIDEN, PEER, Treatment, configured, squid

SUITE = "TLS_AES_256_GCM_SHA384"
RECORD_OVERHEAD = 0.05  # largest share of TLS overhead, relative to the payload
# Python 3.11 has no function that selects cipher suites of TLS 1.3.
OPENSSL = f"openssl_conf = all\n[all]\nssl_conf = tls\n[tls]\nsystem_default = client\n[client]\nCiphersuites = {SUITE}\n"


def certificate(place):
    """Returns the paths of the certificate, of its key, and of a file with both. All programs of a run use them."""
    paths = [os.path.join(place.folder, name) for name in ("tls.crt", "tls.key", "tls.pem")]
    if not os.path.exists(paths[2]):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", f"/CN={netns.RELAY_IP}", "-addext", f"subjectAltName=IP:{netns.RELAY_IP}",
                        "-keyout", paths[1], "-out", paths[0]], check=True, capture_output=True)
        with open(paths[2], "w") as both:
            for path in paths[:2]:
                with open(path) as part:
                    both.write(part.read())
    return paths


def ekiden_text(place):
    path, key, _ = certificate(place)
    return configs.EKIDEN_HTTPS.format(port=place.port, certificate=path, key=key)


def squid_text(place):
    return configs.squid(place).replace("http_port", "https_port", 1).replace(
        f":{place.port}\n", f":{place.port} tls-cert={certificate(place)[2]}\n", 1)


def caddy_text(place):
    path, key, _ = certificate(place)
    return configs.CADDY.format(port=place.port, certificate=path, key=key)


def caddy(binary, place):
    """Returns Caddy with the directory of the run as its home, because Caddy stores an identifier in its home."""
    inner = configured(caddy_text, "run", "--adapter", "caddyfile", "--config", "FILE")(binary, place)
    return ["env", f"HOME={place.folder}", *inner]


EKIDEN_HTTPS = configured(ekiden_text, "run", "--admin", "off", "-c", "FILE")

TREATMENTS = (
    Treatment("ekiden", EKIDEN, speak.CONNECT, "ekiden", EKIDEN_HTTPS),
    Treatment("squid-gnutls", PEER, speak.CONNECT, "squid", squid(squid_text)),
    Treatment("squid-openssl", PEER, speak.CONNECT, "squid-openssl", squid(squid_text)),
    Treatment("caddy", PEER, speak.CONNECT, "caddy", caddy),
)

if os.environ.get("EKIDEN_BEFORE"):
    TREATMENTS += (Treatment("before", EARLIER, speak.CONNECT, "ekiden-before", EKIDEN_HTTPS),)


def check(stand):
    """Downloads a file with curl, which decrypts and authenticates the records."""
    extra = ["--proxy-cacert", certificate(stand)[0], "--proxy-tls13-ciphers", SUITE]
    size, = curl(stand, origin.PARALLEL, extra, "%{size_download}\n", scheme="https")
    if int(size) != stand.sizes.parallel:
        raise Trouble(f"curl got {size} bytes, not {stand.sizes.parallel}")


def download(stand):
    """Returns the result of a download by `tls_client.py`."""
    settings = os.path.join(stand.folder, "openssl.cnf")
    with open(settings, "w") as f:
        f.write(OPENSSL)
    argv = ["env", f"OPENSSL_CONF={settings}", sys.executable, "-B", os.path.join(HERE, "tls_client.py"), *map(str, stand.address),
            certificate(stand)[0], f"{netns.SERVER_IP}:{origin.PORT}", origin.LARGE, str(stand.sizes.curl_seconds)]
    return json.loads(output_of(stand.network, "client", argv, stand.sizes.curl_seconds + 10))


def one(stand):
    """Measures one large download. Raises Trouble unless the connection has TLS 1.3 with SUITE, which all proxies
    use."""
    check(stand)
    found, cpu = with_cpu(stand, lambda: download(stand))
    size = stand.sizes.large
    if (found["version"], found["suite"]) != ("TLSv1.3", SUITE):
        raise Trouble(f"{found['version']} with {found['suite']}")
    if not size < found["bytes"] < size * (1 + RECORD_OVERHEAD):
        raise Trouble(f"{found['bytes']} bytes of records for {size} bytes")
    return {"one_rate": size * 8 / found["seconds"] / 1e9, "one_cpu": cpu / (size / GIB)}
