# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gym_objstore.errors import Invalid
from gym_objstore.store.location import Location, parse_url


@pytest.mark.parametrize(
    ("url", "location", "same"),
    [
        ("s3://bucket", Location("s3", "bucket", ""), "s3://bucket"),
        ("s3://bucket/", Location("s3", "bucket", ""), "s3://bucket"),
        ("s3://bucket/a/b", Location("s3", "bucket", "a/b/"), "s3://bucket/a/b"),
        ("s3://bucket/a/b/", Location("s3", "bucket", "a/b/"), "s3://bucket/a/b"),
        ("s3://My_bucket.x/a?b#c", Location("s3", "My_bucket.x", "a?b#c/"), "s3://My_bucket.x/a?b#c"),
        ("gs://bucket/a", Location("gs", "bucket", "a/"), "gs://bucket/a"),
        ("az://container/a", Location("az", "container", "a/"), "az://container/a"),
        ("file:///folder/sub/", Location("file", "", "/folder/sub/"), "file:///folder/sub"),
        ("file:///with%20space", Location("file", "", "/with space/"), "file:///with%20space"),
        ("file:///with space", Location("file", "", "/with space/"), "file:///with%20space"),
        ("file:////a/./b/../c", Location("file", "", "/a/c/"), "file:///a/c"),
        ("memory://", Location("memory", "", "/"), "memory://"),
        ("memory://name/sub", Location("memory", "", "name/sub/"), "memory://name/sub"),
        ("sftp://user@host/folder/", Location("sftp", "", "user@host/folder/"), "sftp://user@host/folder"),
    ],
)
def test_a_url_names_one_place_and_that_place_one_url(url, location, same):
    assert parse_url(url) == location
    assert location.url == same
    assert parse_url(same) == location


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "not a store url"),
        (None, "not a store url"),
        (b"s3://bucket", "not a store url"),
        ("bucket/prefix", "not a store url"),
        ("/folder", "not a store url"),
        ("s3:/bucket/x", "not a store url"),
        ("S3://bucket/x", "not a store url"),
        (" s3://bucket", "not a store url"),
        ("s3://", "no bucket has such a name"),
        ("s3:///prefix", "no bucket has such a name"),
        ("s3://b", "no bucket has such a name"),
        ("s3://buc ket", "no bucket has such a name"),
        ("s3://bucket?region=x", "no bucket has such a name"),
        ("s3://bucket/a//b", "no usable prefix"),
        ("s3://bucket/../other", "no usable prefix"),
        ("s3://bucket/ünïcödé", "no usable prefix"),
        ("s3://bucket/a\nb", "printable"),
        ("file://relative/folder", "absolute path"),
        ("file:///", "absolute path"),
        ("file:///a%00b", "absolute path"),
        ("https://bucket.s3.amazonaws.com/x", "endpoint="),
        ("http://127.0.0.1:9000/bucket", "endpoint="),
        ("sftp://", "nothing follows"),
    ],
)
def test_a_bad_url_is_refused_with_its_reason_and_examples(url, why):
    with pytest.raises(Invalid, match=why) as caught:
        parse_url(url)
    assert caught.value.kind == "bad_url"
    assert "s3://bucket/prefix" in caught.value.hint


@pytest.mark.parametrize("url", ["s3://key:canary@bucket/x", "sftp://me:canary@host/x", "https://me:canary@host"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url):
    with pytest.raises(Invalid) as caught:
        parse_url(url)
    assert "canary" not in str(caught.value)
