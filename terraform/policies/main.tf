# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
# Who may do what, as JSON. No provider is needed, so that this module can be planned and tested anywhere.

terraform {
  required_version = ">= 1.5"
}

locals {
  identities = ["model-server", "inference-worker", "trainer", "sweeper", "viewer"]
  writers    = ["model-server", "inference-worker", "trainer"]
  bucket_arn = "arn:${var.partition}:s3:::${var.bucket}"
  prefix     = var.prefix == "" ? "" : "${var.prefix}/"

  templates = {
    for name in concat(local.identities, ["ledger-control", "run-expiry"]) :
    name => jsondecode(templatefile("${path.module}/${name}.json.tftpl", { bucket_arn = local.bucket_arn, prefix = local.prefix }))
  }

  statements = {
    for identity in local.identities : identity => concat(
      local.templates[identity].Statement,
      [
        for statement in local.templates["ledger-control"].Statement : statement
        if identity == "model-server" && var.model_server_retires_ledgers
      ],
      [
        for statement in local.templates["run-expiry"].Statement : statement
        if identity == "sweeper" && var.sweeper_removes_runs
      ],
      [
        for arn in [var.kms_key_arn] : {
          Sid      = "UseKey"
          Effect   = "Allow"
          Action   = contains(local.writers, identity) ? ["kms:Decrypt", "kms:GenerateDataKey"] : ["kms:Decrypt"]
          Resource = arn
        } if arn != null
      ],
      # A directory bucket knows sessions only, for the whole bucket: it keeps readers from writing, and no more.
      [
        for arn in [var.directory_bucket_arn] : {
          Sid       = "OpenReadingSession"
          Effect    = "Allow"
          Action    = "s3express:CreateSession"
          Resource  = arn
          Condition = { StringEquals = { "s3express:SessionMode" = "ReadOnly" } }
        } if arn != null && identity == "viewer"
      ],
      [
        for arn in [var.directory_bucket_arn] : {
          Sid      = "OpenSession"
          Effect   = "Allow"
          Action   = "s3express:CreateSession"
          Resource = arn
        } if arn != null && identity != "viewer"
      ],
    )
  }
}

# What the bucket itself refuses, whoever asks.
locals {
  refusals = concat(
    [
      {
        Sid       = "RefusePlainHttp"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [local.bucket_arn, "${local.bucket_arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "RefuseOldTls"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [local.bucket_arn, "${local.bucket_arn}/*"]
        Condition = { NumericLessThan = { "s3:TlsVersion" = "1.2" } }
      },
    ],
    # Without these headers the bucket's own key is used; Null keeps such requests out of the comparison.
    [
      for arn in [var.kms_key_arn] : {
        Sid       = "RefuseOtherEncryption"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:PutObject"
        Resource  = "${local.bucket_arn}/*"
        Condition = {
          Null            = { "s3:x-amz-server-side-encryption" = "false" }
          StringNotEquals = { "s3:x-amz-server-side-encryption" = "aws:kms" }
        }
      } if arn != null
    ],
    [
      for arn in [var.kms_key_arn] : {
        Sid       = "RefuseOtherKeys"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:PutObject"
        Resource  = "${local.bucket_arn}/*"
        Condition = {
          Null            = { "s3:x-amz-server-side-encryption-aws-kms-key-id" = "false" }
          StringNotEquals = { "s3:x-amz-server-side-encryption-aws-kms-key-id" = arn }
        }
      } if arn != null
    ],
  )
}

# Who may take an identity's role.
locals {
  accounts = var.irsa == null ? {} : var.irsa.service_accounts
  issuer   = var.irsa == null ? "" : regex("oidc-provider/(.+)$", var.irsa.oidc_provider_arn)[0]

  trust = {
    for identity in local.identities : identity => concat(
      [
        for account in [lookup(local.accounts, identity, null)] : {
          Effect    = "Allow"
          Action    = "sts:AssumeRoleWithWebIdentity"
          Principal = { Federated = var.irsa.oidc_provider_arn }
          Condition = {
            StringEquals = {
              "${local.issuer}:aud" = "sts.amazonaws.com"
              "${local.issuer}:sub" = "system:serviceaccount:${var.irsa.namespace}:${account}"
            }
          }
        } if account != null
      ],
      [
        for arns in [lookup(var.trusted_principals, identity, [])] : {
          Effect    = "Allow"
          Action    = "sts:AssumeRole"
          Principal = { AWS = arns }
        } if length(arns) > 0
      ],
    )
  }
}
