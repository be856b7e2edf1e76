use ekiden_proto::wire::section::reader::READ_STEP;
use ekiden_sys::outq::unread;
use ekiden_sys::sockopt::keep_urgent_data_inline;
use ekiden_testing::TEST_TIMEOUT;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::*;
use crate::testing::{section_keys, tcp_pair, wait_until};

/// Largest plaintext of the first record in bytes.
const FIRST: usize = 100;

/// The ciphers of both sides after a handshake.
pub fn section_ciphers() -> (RecordCipher, RecordCipher) {
    let (near, far) = section_keys();
    (RecordCipher::new(near, FIRST), RecordCipher::new(far, FIRST))
}

fn plain(opened: OpenedRecord) -> Vec<u8> {
    opened.record[opened.plaintext].to_vec()
}

#[tokio::test]
async fn records_of_all_sizes_are_decrypted_unchanged() {
    let (near, far) = section_ciphers();
    far.allow_read_ahead();
    let (mut writer, reader) = tcp_pair().await;
    let pieces: Vec<Vec<u8>> = [1, MAX_PLAINTEXT, 17, READ_STEP, READ_STEP - 18, 1, MAX_PLAINTEXT]
        .iter()
        .map(|length| vec![*length as u8; *length])
        .collect();
    let mut records: Vec<u8> = pieces.iter().flat_map(|piece| near.seal_all(piece)).collect();
    records.extend(near.end_record());
    let writing = tokio::spawn(async move { writer.write_all(&records).await.map(|()| writer) });
    for piece in &pieces {
        assert!(plain(far.next_record(&reader).await.unwrap()) == *piece, "a record of {} bytes changed", piece.len());
    }
    assert!(far.next_record(&reader).await.unwrap().plaintext.is_empty(), "the end record");
    drop(writing.await.unwrap().unwrap());
    assert_eq!(far.next_record(&reader).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// Regression: a read stops at urgent data, which the reader mistook for an empty socket, so the rest was not read
/// before more bytes arrived. Records are never sent as urgent data, but a host on the path can mark any byte as
/// urgent.
#[tokio::test]
async fn urgent_data_does_not_delay_records() {
    for at in [0, 1, 2, 50, 51, 52, 100] {
        let (near, far) = section_ciphers();
        far.allow_read_ahead();
        let (writer, reader) = tcp_pair().await;
        keep_urgent_data_inline(reader.as_fd()).unwrap();
        // tokio regards a socket as readable until a read would block.
        assert!(reader.try_read(&mut [0]).is_err());
        let records = [near.seal_all(&[7; 33]), near.seal_all(&[8; 33]), near.end_record()].concat();
        let writer = SockRef::from(&writer);
        writer.send(&records[..at]).unwrap();
        writer.send_out_of_band(&records[at..=at]).unwrap();
        writer.send(&records[at + 1..]).unwrap();
        wait_until("all bytes", || unread(reader.as_fd()).unwrap() == records.len());
        // All bytes have arrived, so this is the only readiness event.
        reader.readable().await.unwrap();
        let all = async {
            let mut all = Vec::new();
            while let record @ [_, ..] = &plain(far.next_record(&reader).await.unwrap())[..] {
                all.extend_from_slice(record);
            }
            all
        };
        let all = timeout(TEST_TIMEOUT, all).await;
        assert_eq!(all.expect("all records arrive"), [[7; 33], [8; 33]].concat(), "urgent byte at {at}");
    }
}

/// After OPEN and its answer, the bytes of the session may be unencrypted, and must not be read as records.
#[tokio::test]
async fn without_read_ahead_no_byte_is_read_behind_a_record() {
    let (near, far) = section_ciphers();
    let (mut writer, reader) = tcp_pair().await;
    writer.write_all(&[near.seal_all(b"OPEN"), b"payload".to_vec()].concat()).await.unwrap();
    assert_eq!(plain(far.next_record(&reader).await.unwrap()), b"OPEN");
    let mut rest = [0; 16];
    reader.readable().await.unwrap();
    let count = reader.try_read(&mut rest).unwrap();
    assert_eq!(&rest[..count], b"payload");
}

#[tokio::test]
async fn altered_oversized_and_truncated_records_are_errors() {
    let (near, far) = section_ciphers();
    let (mut writer, reader) = tcp_pair().await;
    let mut record = near.seal_all(b"payload");
    record[HEADER_LENGTH] ^= 1;
    writer.write_all(&record).await.unwrap();
    assert_eq!(far.next_record(&reader).await.unwrap_err().kind(), io::ErrorKind::InvalidData);

    let (near, far) = section_ciphers();
    let (mut writer, reader) = tcp_pair().await;
    writer.write_all(&near.seal_all(&[0; FIRST + 1])[..HEADER_LENGTH]).await.unwrap();
    let error = far.next_record(&reader).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "a first record that is too long");

    let (near, far) = section_ciphers();
    let (mut writer, reader) = tcp_pair().await;
    let record = near.seal_all(b"payload");
    writer.write_all(&record[..record.len() - 1]).await.unwrap();
    drop(writer);
    assert_eq!(far.next_record(&reader).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
