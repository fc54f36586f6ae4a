# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

output "documents" {
  description = "By identity, the policy that allows its whole job and nothing else, as JSON."
  value = {
    for identity, statements in local.statements : identity => jsonencode({ Version = "2012-10-17", Statement = statements })
  }
}

output "bucket_policy" {
  description = "What the bucket refuses to everybody, as JSON."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.refusals })
}

output "trust" {
  description = "By identity, who may take its role, as JSON; identities that nobody may take are left out."
  value = {
    for identity, statements in local.trust :
    identity => jsonencode({ Version = "2012-10-17", Statement = statements }) if length(statements) > 0
  }
}
